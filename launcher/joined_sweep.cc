#include "launcher/joined_sweep.h"

#include <algorithm>

#include "cluster/base/errors.h"
#include "cluster/base/log.h"

namespace headsweep {
namespace {

// Of the lease: a beat that is missed by accident does not matter, and neither does a look.
constexpr double kBeatsInALease = 12;
constexpr double kLooksInALease = 12;
constexpr double kLookSeconds = 1;          // at most, so that a stage whose parent finished elsewhere starts soon
constexpr double kLookSecondsOfMany = 0.1;  // more for each other launcher: K of them read K journals at each look

}  // namespace

JoinedSweep::JoinedSweep(FileSystem& files, const Clock& clock, const Workspace& workspace, const std::string& sweep,
                         Membership& membership, double lease_seconds)
    : files_(files),
      clock_(clock),
      workspace_(workspace),
      sweep_(sweep),
      membership_(membership),
      lease_seconds_(lease_seconds),
      watch_(files, workspace.root(), lease_seconds) {}

void JoinedSweep::MeetNewcomers() {
  for (const LauncherCard& card : ReadRoster(files_, workspace_, sweep_))
    if (card.key != membership_.card().key) others_.try_emplace(card.key, card);
}

std::vector<JournalEvent> JoinedSweep::ReadOn(Other& other) {
  std::vector<JournalEvent> events = other.tail.Read(files_);
  for (const JournalEvent& event : events) {
    const std::pair<StageId, Attempt> id(event.stage, event.attempt);
    if (event.type == journal::kAttemptStarted) other.open.insert(id);
    if (event.type == journal::kAttemptEnded) other.open.erase(id);
    if (event.type == journal::kPaused) other.paused_by = journal::Field(event, "by");
    if (event.type == journal::kContinued) other.paused_by.reset();
  }
  return events;
}

std::vector<LauncherJournal> JoinedSweep::ReadJournals() {
  MeetNewcomers();
  std::vector<LauncherJournal> journals;
  for (auto& [key, other] : others_) journals.push_back({other.card, ReadOn(other)});
  return journals;
}

std::vector<Event> JoinedSweep::StateElsewhere() {
  std::vector<Event> events;
  for (auto& [key, other] : others_) {
    other.gone = watch_.IsGone(key);
    if (other.gone) continue;
    if (other.paused_by) events.push_back(PauseRequested{true, *other.paused_by});
    for (const auto& [stage, attempt] : other.open) {
      JournalEvent started;
      started.type = journal::kAttemptStarted;
      started.stage = stage.value();
      started.attempt = attempt.value();
      events.push_back(HeardOf{started});
    }
  }
  return events;
}

void JoinedSweep::Hear(std::vector<Event>& heard) {
  MeetNewcomers();
  for (auto& [key, other] : others_)
    for (JournalEvent& event : ReadOn(other)) heard.push_back(HeardOf{std::move(event)});
}

JoinedSweep::Answer JoinedSweep::ClaimStage(const StageId& stage, Attempt least) {
  const std::string trial = workspace_.Trial(stage.value());
  files_.CreateDirectories(trial);
  const Claim claim = ClaimTrial(trial, {membership_.card().key}, least.value(),
                                 [this](const std::string& launcher) { return watch_.IsGone(launcher); });
  Answer answer{{}, {stage, std::nullopt}, claim.taken_from};
  if (!claim.lease) return answer;
  const Attempt attempt(claim.lease->token);
  held_[{stage, attempt}] = *claim.lease;
  answer.claim.attempt = attempt;
  Hear(answer.heard);  // all that earlier holders have recorded was on the disk before they gave the lease back
  return answer;
}

void JoinedSweep::ReleaseStage(const StageId& stage, Attempt attempt) {
  const auto held = held_.find({stage, attempt});
  if (held == held_.end()) return;
  const Lease lease = held->second;
  held_.erase(held);
  try {
    if (IsHeld(lease, {membership_.card().key})) Release(lease);
  } catch (const IoError& error) {
    LogWarning("a lease could not be given back; the others wait until this launcher has left: {}", error.what());
  }
}

bool JoinedSweep::Holds(const StageId& stage, Attempt attempt) const {
  const auto held = held_.find({stage, attempt});
  if (held == held_.end()) return false;
  try {
    return IsHeld(held->second, {membership_.card().key});
  } catch (const IoError& error) {
    LogWarning("{}", error.what());
    return true;
  }
}

std::string JoinedSweep::FenceOf(const StageId& stage, Attempt attempt) const {
  const auto held = held_.find({stage, attempt});
  return held == held_.end() ? "" : held->second.fence;
}

std::vector<Event> JoinedSweep::Look() {
  std::vector<Event> events;
  const double now = clock_.Monotonic();
  try {
    if (now >= last_beat_ + lease_seconds_ / kBeatsInALease) {
      membership_.Beat();
      last_beat_ = now;
    }
    const double often = std::max(std::min(kLookSeconds, lease_seconds_ / kLooksInALease),
                                  kLookSecondsOfMany * static_cast<double>(others_.size()));
    const double interval = std::min(often, lease_seconds_ / 4);
    if (now < last_look_ + interval) return events;
    last_look_ = now;
    for (const auto& [id, lease] : held_)
      if (!Holds(id.first, id.second)) events.push_back(LeaseLost{id.first, id.second});
    Hear(events);
    watch_.Look(now, 2 * interval);
    for (auto& [key, other] : others_) {
      const bool was_gone = other.gone;
      other.gone = watch_.IsGone(key);
      if (!other.gone || (was_gone && other.open.empty())) continue;
      for (const auto& [stage, attempt] : other.open) events.push_back(LeftBehind{stage, attempt});
      other.open.clear();
    }
  } catch (const IoError& error) {
    LogWarning("{}", error.what());
  }
  return events;
}

}  // namespace headsweep
