// The history of a sweep: what all its journals say together (launcher/JOURNAL.md, LEASES.md). A launcher that had the sweep for
// itself wrote the sweep's journal.jsonl; each that shared it wrote one of its own.
#pragma once

#include <string>
#include <vector>

#include "launcher/journal.h"
#include "launcher/roster.h"

namespace headsweep {

struct LauncherJournal {
  LauncherCard launcher;
  std::vector<JournalEvent> events;
};

// One history, as if one launcher had written it: for each stage, events are in the order of attempts, and what one launcher
// recorded of an attempt stays in its order. Last comes the launch that goes on now: `launch` of the shared ones, or, when it
// is "", the sweep's own journal. In it the first start counts as a person's, the others as its continuation.
std::vector<JournalEvent> MergeJournals(std::vector<JournalEvent> own, const std::vector<LauncherJournal>& shared,
                                        const std::string& launch);

}  // namespace headsweep
