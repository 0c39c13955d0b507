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

  // False when somebody else holds it. Throws IoError when the file cannot be opened.
  bool TryLock(const std::string& path);
  int descriptor() const { return descriptor_; }

 private:
  int descriptor_ = -1;
};

}  // namespace headsweep
