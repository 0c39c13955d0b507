#include "launcher/trial_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "cluster/base/errors.h"

namespace headsweep {

TrialLock::~TrialLock() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

TrialLock::TrialLock(TrialLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

TrialLock& TrialLock::operator=(TrialLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

bool TrialLock::TryLock(const std::string& path, bool fenced) {
  if (descriptor_ < 0) descriptor_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor_ < 0) throw IoError("open", path, errno);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return true;
  const bool no_locks = errno == ENOLCK || errno == EOPNOTSUPP || errno == ENOSYS;
  if (no_locks && fenced) return true;
  if (errno != EWOULDBLOCK && errno != EINTR)
    throw IoError("lock", path, errno,
                  no_locks ? "this file system has no locks (mount it with flock, or run with --join: leases need none)"
                           : "");
  return false;
}

}  // namespace headsweep
