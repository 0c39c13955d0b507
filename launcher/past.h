// What a launcher must know of a sweep's journals before it builds the scheduler core from them.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "launcher/journal_format.h"

namespace headsweep {

struct Past {
  std::map<std::string, std::string> recorded;  // stages whose end with a result is in a journal -> "": CheckResults' `recorded`
  std::map<std::string, int> early_stopped;     // stage -> the attempt that was

  std::set<std::string> launches;               // of the launchers that began, as far as they had a name (joining.h)

  void Look(const JournalEvent& event);
  void LookForResult(const JournalEvent& event);
  // early_stopped anew: the events of several journals, now in their order.
  void LookAgain(const std::vector<JournalEvent>& merged);
  // Appends the records of a person who wants done what was stopped early.
  void RetryEarlyStopped(std::vector<JournalEvent>& records) const;
};

}  // namespace headsweep
