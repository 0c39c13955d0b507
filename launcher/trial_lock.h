// The lock of one trial: held by whoever works on it, so that two sweeps of a workspace that share the trial
// never run it at the same time. An flock on trials/<id>/running.lock whose descriptor the trainer inherits:
// it is free exactly when the last process of the trial is gone, however the launcher ended.
#pragma once

#include <string>

namespace headsweep {

class TrialLock {
 public:
  TrialLock() = default;
  ~TrialLock();
  TrialLock(TrialLock&& other) noexcept;
  TrialLock& operator=(TrialLock&& other) noexcept;

  // False when somebody else holds it. fenced: the trial's lease keeps others away, so a file system without locks will do.
  // Throws IoError when the file cannot be opened, or, unless fenced, the file system has no locks.
  bool TryLock(const std::string& path, bool fenced = false);
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace headsweep
