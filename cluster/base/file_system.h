// The file system as an interface. All durable state (journal, checkpoints, results, prepared data) goes through it,
// so that tests can crash at every operation and forget what was never synced.
// Every method throws IoError (operation, path, errno) unless it says otherwise. Paths are UTF-8.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headsweep {

// An append-only file, held open. What Sync() has returned for survives a crash; anything later may be lost or torn.
class AppendFile {
 public:
  virtual ~AppendFile() = default;  // closes without syncing, never throws
  virtual void Append(std::string_view bytes) = 0;
  virtual void Sync() = 0;
  virtual std::int64_t size() const = 0;
};

class FileSystem {
 public:
  virtual ~FileSystem() = default;

  virtual std::string ReadFile(const std::string& path) const = 0;
  // What follows byte offset; "" at or beyond the end. Opens the file anew, so over NFS it is what others have closed.
  virtual std::string ReadFrom(const std::string& path, std::int64_t offset) const;
  // At most so many bytes from offset on; fewer only at the end of the file. For files that need not be in memory as a whole.
  virtual std::string ReadBlock(const std::string& path, std::int64_t offset, std::size_t bytes) const;
  virtual bool Exists(const std::string& path) const = 0;
  virtual bool IsDirectory(const std::string& path) const;  // asks the real file system unless overridden
  virtual std::int64_t FileSize(const std::string& path) const = 0;
  virtual std::vector<std::string> List(const std::string& directory) const = 0;  // names, sorted; [] if absent

  virtual void CreateDirectories(const std::string& path) = 0;  // new directories are durable when this returns
  virtual void MakeDirectory(const std::string& path);  // not durable; one that exists is fine
  virtual void WriteFile(const std::string& path, std::string_view bytes) = 0;  // not durable; truncates
  virtual std::unique_ptr<AppendFile> OpenForAppend(const std::string& path) = 0;  // created if absent
  virtual void Truncate(const std::string& path, std::int64_t size) = 0;
  virtual void SyncFile(const std::string& path) = 0;
  virtual void SyncDirectory(const std::string& path) = 0;
  virtual void Rename(const std::string& from, const std::string& to) = 0;  // atomic; replaces a file
  virtual void Remove(const std::string& path) = 0;      // a file; absent is fine
  virtual void RemoveAll(const std::string& path) = 0;   // a tree; absent is fine

  static FileSystem& Real();
};

// When this returns, path holds exactly bytes, even after a power cut; a crash in between leaves the old file or none.
// Order: write path.tmp-<host>-<pid>, fsync, rename, fsync directory.
void WriteFileDurably(FileSystem& files, const std::string& path, std::string_view bytes);

// Moves a finished file or directory (already fully written) into place durably: fsyncs it (and, for a directory, every
// file directly in it), renames, fsyncs the parent.
// fence: a directory on the way. Whoever may no longer seal has lost it: another process has renamed it (launcher/lease.h).
// Both renames are atomic, so either path appears or the fence stops it: IoError with errno ESTALE.
void SealInPlace(FileSystem& files, const std::string& temporary, const std::string& path,
                 const std::string& fence = "");

// "a/b" + "c" = "a/b/c".
std::string JoinPath(std::string_view directory, std::string_view name);
std::string ParentPath(std::string_view path);  // "a/b/c" -> "a/b"; "c" -> "."
std::string BaseName(std::string_view path);    // "a/b/c" -> "c"

}  // namespace headsweep
