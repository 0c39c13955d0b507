// An advisory lock on a file, held until the object is gone or the process ends, however it ends (flock). It
// holds between processes and between threads. The file stays behind, empty or with its last holder's name:
// removing it would be a race.
#pragma once

#include <functional>
#include <string>

namespace headsweep {

class FileLock {
 public:
  // Waits for at most timeout_seconds, calling on_wait(holder) once if it has to; holder: "host pid", or
  // "another process". Throws CommError when the time is up, IoError if the file system has no locks.
  FileLock(const std::string& path, double timeout_seconds,
           const std::function<void(const std::string&)>& on_wait);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int fd_;
};

}  // namespace headsweep
