#include "launcher/history.h"

#include <algorithm>
#include <map>
#include <utility>

namespace headsweep {
namespace {

constexpr const char* kAutomatic = "automatic";

// Attempts have numbers that rise from lease to lease, so they order the events of a stage; no clock does. A person's retry
// bears the number of the attempt that had failed.
std::pair<int, bool> Place(const JournalEvent& event) { return {event.attempt, event.type == journal::kRetried}; }

void Append(std::vector<JournalEvent>& all, std::vector<JournalEvent> events) {
  all.insert(all.end(), std::make_move_iterator(events.begin()), std::make_move_iterator(events.end()));
}

// The journals of one launch as one.
std::vector<JournalEvent> MergeLaunch(const std::vector<const LauncherJournal*>& journals) {
  std::vector<JournalEvent> events;
  bool begun = false;
  for (const LauncherJournal* journal : journals) {
    for (JournalEvent event : journal->events) {
      if (event.type == journal::kSweepStarted && std::exchange(begun, true)) event.fields[kAutomatic] = "yes";
      events.push_back(std::move(event));
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const JournalEvent& a, const JournalEvent& b) { return Place(a) < Place(b); });
  return events;
}

}  // namespace

std::vector<JournalEvent> MergeJournals(std::vector<JournalEvent> own, const std::vector<LauncherJournal>& shared,
                                        const std::string& launch) {
  std::map<std::string, std::vector<const LauncherJournal*>> launches;
  for (const LauncherJournal& journal : shared) launches[journal.launcher.launch].push_back(&journal);
  std::vector<JournalEvent> events;
  if (!launch.empty()) Append(events, std::move(own));
  for (const auto& [name, journals] : launches)
    if (name != launch) Append(events, MergeLaunch(journals));
  if (launch.empty()) {
    Append(events, std::move(own));
  } else if (const auto now = launches.find(launch); now != launches.end()) {
    Append(events, MergeLaunch(now->second));
  }
  return events;
}

}  // namespace headsweep
