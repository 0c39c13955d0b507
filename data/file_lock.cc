#include "data/file_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

constexpr int kPollMs = 20;  // chosen: short against preparing (seconds), long against the cost of asking

std::string Holder(int fd) {
  char text[128];
  const ssize_t n = ::pread(fd, text, sizeof text, 0);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "another process";
}

void WriteHolder(int fd) {
  char host[64] = "";
  ::gethostname(host, sizeof host - 1);
  const std::string text = fmt::format("{} {}", host, ::getpid());
  // Only for people and messages: a full disk must not keep the lock from being taken.
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, text.data(), text.size(), 0) < 0) return;
}

}  // namespace

FileLock::FileLock(const std::string& path, double timeout_seconds,
                   const std::function<void(const std::string&)>& on_wait)
    : fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644)) {
  if (fd_ < 0) throw IoError("open lock", path, errno);
  const auto start = std::chrono::steady_clock::now();
  bool told = false;
  while (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    const int error_number = errno;
    const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (error_number != EWOULDBLOCK && error_number != EINTR) {
      ::close(fd_);
      throw IoError("lock", path, error_number, "put the workspace on a file system with locks (flock)");
    }
    if (elapsed > timeout_seconds) {
      const std::string holder = Holder(fd_);
      ::close(fd_);
      throw CommError(holder, "wait for lock " + path, elapsed, "still held; is that process hanging?");
    }
    if (!told && error_number == EWOULDBLOCK) {
      told = true;
      on_wait(Holder(fd_));
    }
    ::poll(nullptr, 0, kPollMs);
  }
  WriteHolder(fd_);
}

FileLock::~FileLock() { ::close(fd_); }

}  // namespace headsweep
