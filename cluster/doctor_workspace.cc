#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/doctor_checks.h"

namespace headsweep {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

// Chosen: a small sweep (100 trials of some MiB, two checkpoints each) takes about 1 GiB.
constexpr double kTooLittleGiB = 0.1;
constexpr double kLittleGiB = 2;

// The workspace, or its nearest parent that exists.
std::string ExistingPart(const std::string& workspace) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(workspace, error).lexically_normal();
  while (!std::filesystem::exists(path, error) && path.has_parent_path() && path != path.parent_path())
    path = path.parent_path();
  return path.string();
}

// "" where it is nothing special. Numbers: man 2 statfs.
std::string FileSystemKind(const std::string& directory) {
  struct statfs info {};
  if (::statfs(directory.c_str(), &info) != 0) return "";
  switch (static_cast<unsigned long>(info.f_type)) {
    case 0x6969:
      return "NFS";
    case 0x0bd00bd0:
      return "Lustre";
    case 0x47504653:
      return "GPFS";
    case 0x19830326:
      return "BeeGFS";
    case 0x01021994:
      return "tmpfs";
    default:
      return "";
  }
}

// A directory of our own in there, removed at the end.
class Probe {
 public:
  explicit Probe(const std::string& parent) : path_(JoinPath(parent, ".headsweep-doctor-XXXXXX")) {
    if (::mkdtemp(path_.data()) == nullptr) throw IoError("create a directory in", parent, errno);
  }
  ~Probe() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Probe(const Probe&) = delete;
  Probe& operator=(const Probe&) = delete;
  std::string operator/(const std::string& name) const { return JoinPath(path_, name); }

 private:
  std::string path_;
};

void TryLock(const std::string& path) {
  const int first = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (first < 0) throw IoError("open", path, errno);
  const int second = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  const bool locked = ::flock(first, LOCK_EX | LOCK_NB) == 0;
  const int error_number = errno;
  const bool excludes = locked && second >= 0 && ::flock(second, LOCK_EX | LOCK_NB) != 0;
  ::close(first);
  if (second >= 0) ::close(second);
  if (!locked) throw IoError("lock", path, error_number);
  if (!excludes) throw IoError("exclude a second holder from the lock", path, EDEADLK);
}

void TryMapping(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) throw IoError("open", path, errno);
  void* base = ::mmap(nullptr, 1, PROT_READ, MAP_SHARED, fd, 0);
  const int error_number = errno;
  ::close(fd);
  if (base == MAP_FAILED) throw IoError("map", path, error_number);
  ::munmap(base, 1);
}

}  // namespace

Finding CheckWorkspace(const DoctorContext& context) {
  const std::string& workspace = context.options.workspace;
  const std::string directory = ExistingPart(workspace);
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error))
    return {"", FindingLevel::kProblem, fmt::format("{} is a file, not a directory", directory),
            "choose another --workspace"};
  const char* remedy = "choose a --workspace on a local disk or a file system that can do this";
  try {
    FileSystem& files = FileSystem::Real();
    const Probe probe(directory);
    WriteFileDurably(files, probe / "durable", "written, synced, renamed");
    if (files.ReadFile(probe / "durable") != "written, synced, renamed")
      return {"", FindingLevel::kProblem,
              fmt::format("{}: a file reads back otherwise than written", directory), remedy};
    TryLock(probe / "lock");
    TryMapping(probe / "durable");
  } catch (const IoError& failure) {
    const bool denied = failure.error_number() == EACCES || failure.error_number() == EROFS ||
                        failure.error_number() == EPERM;
    return {"", FindingLevel::kProblem, failure.what(),
            denied ? "choose a --workspace you may write to" : remedy};
  }
  const std::string kind = FileSystemKind(directory);
  std::string text = fmt::format("{} can be written, synced, renamed, locked and mapped", directory);
  if (!kind.empty()) text += " (" + kind + ")";
  if (kind == "tmpfs")
    return {"", FindingLevel::kNote, text + ": it is memory, and lost when the machine restarts",
            "choose a --workspace on a disk for runs worth keeping"};
  return {"", FindingLevel::kOk, text, ""};
}

Finding CheckFreeSpace(const DoctorContext& context) {
  const std::string directory = ExistingPart(context.options.workspace);
  struct statvfs info {};
  if (::statvfs(directory.c_str(), &info) != 0) throw IoError("ask for free space of", directory, errno);
  const double free = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize) / kGiB;
  const std::string text = fmt::format("{:.1f} GiB free in {}", free, directory);
  const char* remedy = "free some space or choose another --workspace";
  if (!(free >= kTooLittleGiB)) return {"", FindingLevel::kProblem, text, remedy};
  if (!(free >= kLittleGiB))
    return {"", FindingLevel::kNote, text + ": enough for a small sweep only", remedy};
  return {"", FindingLevel::kOk, text, ""};
}

}  // namespace headsweep
