// JoinedSweep: the side of a launcher that looks at the others who work on the same sweep (launcher/LEASES.md): it claims and
// gives back the leases of trials, beats, hears what the others record, and notices who is gone and what was taken from here.
// It decides nothing about the sweep: what it finds becomes events for the core. On the event loop, like the coordinator.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/file_system.h"
#include "launcher/core.h"
#include "launcher/history.h"
#include "launcher/lease.h"
#include "launcher/roster.h"
#include "launcher/workspace.h"

namespace headsweep {

class JoinedSweep {
 public:
  // lease_seconds: after so long without a beat of its launcher, a lease may be taken over.
  JoinedSweep(FileSystem& files, const Clock& clock, const Workspace& workspace, const std::string& sweep,
              Membership& membership, double lease_seconds);

  // What all the others have recorded so far; the events after it come from Look and Claim. Call once, first.
  std::vector<LauncherJournal> ReadJournals();
  // Of the others that may live, for a core that knows the history: whether they are paused (then this launcher is too, until
  // somebody says `continue` to all of them), and the attempts that have begun and not ended, according to their journals.
  std::vector<Event> StateElsewhere();

  struct Answer {
    std::vector<Event> heard;  // to be handled first: it may change what the claim was for
    ClaimAnswered claim;
    std::string taken_from;    // the launcher that had the trial and is gone
  };
  // Throws IoError.
  Answer ClaimStage(const StageId& stage, Attempt least);
  void ReleaseStage(const StageId& stage, Attempt attempt);
  // Whether that attempt still has its trial. What cannot be told now counts as yes: the fence decides at sealing.
  bool Holds(const StageId& stage, Attempt attempt) const;
  // What the attempt seals through; "" for one that has no lease.
  std::string FenceOf(const StageId& stage, Attempt attempt) const;

  // Beats and looks around when it is time for that; call it about every tick. Never throws IoError: a file system that does
  // not answer for a while costs leases at most.
  std::vector<Event> Look();

 private:
  struct Other {
    explicit Other(const LauncherCard& its) : card(its), tail(JournalOf(its.directory)) {}
    LauncherCard card;
    JournalTail tail;
    std::set<std::pair<StageId, Attempt>> open;  // begun and not ended
    std::optional<std::string> paused_by;
    bool gone = false;
  };
  void MeetNewcomers();
  std::vector<JournalEvent> ReadOn(Other& other);
  void Hear(std::vector<Event>& heard);

  FileSystem& files_;
  const Clock& clock_;
  const Workspace& workspace_;
  std::string sweep_;
  Membership& membership_;
  double lease_seconds_;
  LauncherWatch watch_;
  std::map<std::string, Other> others_;  // by key
  std::map<std::pair<StageId, Attempt>, Lease> held_;
  double last_beat_ = 0, last_look_ = 0;
};

}  // namespace headsweep
