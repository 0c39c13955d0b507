#include "cluster/base/file_system.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// Crash injection on the real file system: HEADSWEEP_CRASH_AT=<operation>:<n> ends the process (exit 137, no
// clean-up) just before its n-th durable operation of that kind; "any" counts them all. Operations: append,
// sync, rename, remove.
class CrashPoint {
 public:
  CrashPoint() {
    const char* text = std::getenv("HEADSWEEP_CRASH_AT");
    if (text == nullptr) return;
    const std::string value = text;
    const auto colon = value.find(':');
    if (colon == std::string::npos) return;
    operation_ = value.substr(0, colon);
    remaining_ = std::atol(value.c_str() + colon + 1);
  }
  void Pass(std::string_view operation) {
    if (operation_.empty() || (operation_ != "any" && operation_ != operation)) return;
    if (--remaining_ == 0) ::_exit(137);
  }

 private:
  std::string operation_;
  std::atomic<long> remaining_{0};
};

void Pass(std::string_view operation) {
  static CrashPoint point;
  point.Pass(operation);
}

// "the file system at /scratch has 4096 of 1228800 bytes free": of the mount that path, or what there is of
// it, lies on.
std::string RoomAt(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path at = std::filesystem::absolute(path, ignored);
  struct stat here;
  while (::stat(at.c_str(), &here) != 0 && at.has_relative_path()) at = at.parent_path();
  struct statvfs room;
  if (::statvfs(at.c_str(), &room) != 0 || ::stat(at.c_str(), &here) != 0) return "the file system is full";
  for (struct stat above; at.has_relative_path(); at = at.parent_path()) {
    if (::stat(at.parent_path().c_str(), &above) != 0 || above.st_dev != here.st_dev) break;
  }
  return fmt::format("the file system at {} has {} of {} bytes free", at.string(),
                     room.f_bavail * room.f_frsize, room.f_blocks * room.f_frsize);
}

// bytes: what was still to be written, 0 if that is not known.
[[noreturn]] void Throw(const std::string& operation, const std::string& path, int error_number,
                        std::size_t bytes = 0) {
  std::string hint;
  if (error_number == ENOSPC || error_number == EDQUOT) {
    hint = RoomAt(path) + (error_number == EDQUOT ? ", and a quota is used up" : "") +
           (bytes > 0 ? fmt::format("; {} more are needed for this file alone", bytes) : "") +
           "; free some space, then run `headsweep resume`";
  } else if (error_number == ESTALE) {
    hint = "the file server does not know this file any more: another machine has removed it, or the export has changed";
  } else if (error_number == ENOLCK) {
    hint = "the file server grants no locks: is its lock service (rpc.statd, lockd) running?";
  }
  throw IoError(operation, path, error_number, hint);
}

// An owned descriptor; the destructor closes without reporting, Close() reports.
class Descriptor {
 public:
  Descriptor(const std::string& path, int flags, const char* operation) : path_(path) {
    do {
      fd_ = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
    } while (fd_ < 0 && errno == EINTR);
    if (fd_ < 0) Throw(operation, path, errno);
  }
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;

  int get() const { return fd_; }
  void WriteAll(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Throw("write", path_, errno, bytes.size());
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void Sync() {
    if (::fsync(fd_) != 0) Throw("fsync", path_, errno);
  }
  void Close() {
    const int fd = fd_;
    fd_ = -1;
    if (::close(fd) != 0) Throw("close", path_, errno);
  }

 private:
  std::string path_;
  int fd_ = -1;
};

class RealAppendFile final : public AppendFile {
 public:
  explicit RealAppendFile(const std::string& path) : file_(path, O_WRONLY | O_APPEND | O_CREAT, "open") {
    const off_t end = ::lseek(file_.get(), 0, SEEK_END);
    if (end < 0) Throw("seek", path, errno);
    size_ = end;
  }
  void Append(std::string_view bytes) override {
    Pass("append");
    file_.WriteAll(bytes);
    size_ += static_cast<std::int64_t>(bytes.size());
  }
  void Sync() override {
    Pass("sync");
    file_.Sync();
  }
  std::int64_t size() const override { return size_; }

 private:
  Descriptor file_;
  std::int64_t size_ = 0;
};

class RealFileSystem final : public FileSystem {
 public:
  std::string ReadFile(const std::string& path) const override { return ReadFrom(path, 0); }

  std::string ReadFrom(const std::string& path, std::int64_t offset) const override {
    Descriptor file(path, O_RDONLY, "open");
    if (offset > 0 && ::lseek(file.get(), offset, SEEK_SET) < 0) Throw("seek", path, errno);
    std::string bytes;
    char block[1 << 16];
    while (true) {
      const ssize_t n = ::read(file.get(), block, sizeof block);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Throw("read", path, errno);
      if (n == 0) return bytes;
      bytes.append(block, static_cast<std::size_t>(n));
    }
  }

  std::string ReadBlock(const std::string& path, std::int64_t offset, std::size_t bytes) const override {
    Descriptor file(path, O_RDONLY, "open");
    std::string block(bytes, '\0');
    std::size_t got = 0;
    while (got < bytes) {
      const ssize_t n = ::pread(file.get(), block.data() + got, bytes - got, offset + static_cast<off_t>(got));
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) Throw("read", path, errno);
      if (n == 0) break;
      got += static_cast<std::size_t>(n);
    }
    block.resize(got);
    return block;
  }

  bool Exists(const std::string& path) const override {
    struct stat info;
    if (::stat(path.c_str(), &info) == 0) return true;
    if (errno == ENOENT || errno == ENOTDIR) return false;
    Throw("stat", path, errno);
  }

  std::int64_t FileSize(const std::string& path) const override {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) Throw("stat", path, errno);
    return info.st_size;
  }

  std::vector<std::string> List(const std::string& directory) const override {
    std::vector<std::string> names;
    std::error_code error;
    std::filesystem::directory_iterator it(directory, error);
    if (error == std::errc::no_such_file_or_directory) return names;
    if (error) Throw("list", directory, error.value());
    for (; it != std::filesystem::directory_iterator(); it.increment(error)) {
      if (error) Throw("list", directory, error.value());
      names.push_back(it->path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  void MakeDirectory(const std::string& path) override {
    if (::mkdir(path.c_str(), 0755) == 0 || errno == EEXIST) return;
    if (errno != ENOENT) Throw("mkdir", path, errno);
    CreateDirectories(path);  // a file server may be late to show the parent that another host has made
  }

  void CreateDirectories(const std::string& path) override {
    if (path.empty() || Exists(path)) return;
    const std::string parent = ParentPath(path);
    if (parent != path) CreateDirectories(parent);
    if (::mkdir(path.c_str(), 0755) != 0 && errno != EEXIST) Throw("mkdir", path, errno);
    SyncDirectory(parent);
  }

  void WriteFile(const std::string& path, std::string_view bytes) override {
    Descriptor file(path, O_WRONLY | O_CREAT | O_TRUNC, "create");
    file.WriteAll(bytes);
    file.Close();
  }

  std::unique_ptr<AppendFile> OpenForAppend(const std::string& path) override {
    return std::make_unique<RealAppendFile>(path);
  }

  void Truncate(const std::string& path, std::int64_t size) override {
    if (::truncate(path.c_str(), size) != 0) Throw("truncate", path, errno);
  }

  void SyncFile(const std::string& path) override {
    Pass("sync");
    Descriptor(path, O_RDONLY, "open").Sync();
  }

  void SyncDirectory(const std::string& path) override {
    Pass("sync");
    Descriptor(path, O_RDONLY | O_DIRECTORY, "open").Sync();
  }

  void Rename(const std::string& from, const std::string& to) override {
    Pass("rename");
    if (::rename(from.c_str(), to.c_str()) != 0) Throw("rename " + from + " to", to, errno);
  }

  void Remove(const std::string& path) override {
    Pass("remove");
    if (::unlink(path.c_str()) != 0 && errno != ENOENT) Throw("remove", path, errno);
  }

  void RemoveAll(const std::string& path) override {
    Pass("remove");
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) Throw("remove", path, error.value());
  }
};

}  // namespace

bool FileSystem::IsDirectory(const std::string& path) const { return std::filesystem::is_directory(path); }

std::string FileSystem::ReadFrom(const std::string& path, std::int64_t offset) const {
  const std::string bytes = ReadFile(path);
  return offset < static_cast<std::int64_t>(bytes.size()) ? bytes.substr(static_cast<std::size_t>(offset)) : "";
}

void FileSystem::MakeDirectory(const std::string& path) { CreateDirectories(path); }

std::string FileSystem::ReadBlock(const std::string& path, std::int64_t offset, std::size_t bytes) const {
  return ReadFrom(path, offset).substr(0, bytes);
}

FileSystem& FileSystem::Real() {
  static RealFileSystem files;
  return files;
}

void WriteFileDurably(FileSystem& files, const std::string& path, std::string_view bytes) {
  char host[64] = "";  // hosts of one file system may write the same file
  ::gethostname(host, sizeof host - 1);
  const std::string temporary = fmt::format("{}.tmp-{}-{}", path, host, ::getpid());
  files.WriteFile(temporary, bytes);
  SealInPlace(files, temporary, path);
}

void SealInPlace(FileSystem& files, const std::string& temporary, const std::string& path,
                 const std::string& fence) {
  if (files.IsDirectory(temporary)) {
    for (const std::string& name : files.List(temporary)) files.SyncFile(JoinPath(temporary, name));
    files.SyncDirectory(temporary);
  } else {
    files.SyncFile(temporary);
  }
  if (fence.empty()) {
    files.Rename(temporary, path);
  } else {
    const std::string behind = JoinPath(fence, BaseName(path));
    try {
      files.Rename(temporary, behind);
      files.Rename(behind, path);
    } catch (const IoError& error) {
      if (error.error_number() != ENOENT || files.Exists(fence)) throw;
      throw IoError("seal", path, ESTALE, "another launcher has taken this trial over, so this attempt seals nothing");
    }
  }
  files.SyncDirectory(ParentPath(path));
}

std::string JoinPath(std::string_view directory, std::string_view name) {
  if (directory.empty()) return std::string(name);
  return fmt::format("{}{}{}", directory, directory.back() == '/' ? "" : "/", name);
}

std::string ParentPath(std::string_view path) {
  const auto slash = path.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

std::string BaseName(std::string_view path) {
  const auto slash = path.rfind('/');
  return std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
}

}  // namespace headsweep
