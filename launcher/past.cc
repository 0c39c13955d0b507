#include "launcher/past.h"

namespace headsweep {
namespace {

void LookForEarlyStop(const JournalEvent& event, std::map<std::string, int>& stages) {
  if (event.type == journal::kEarlyStopped) stages[event.stage] = event.attempt;
  if (event.type == journal::kRetried) stages.erase(event.stage);
}

}  // namespace

void Past::LookForResult(const JournalEvent& event) {
  if (event.type != journal::kAttemptEnded && event.type != journal::kStageAdopted) return;
  const auto summary = event.fields.find("summary");
  if (summary != event.fields.end() && !summary->second.empty()) recorded.try_emplace(event.stage);
}

void Past::Look(const JournalEvent& event) {
  LookForResult(event);
  LookForEarlyStop(event, early_stopped);
  if (event.type != journal::kSweepStarted) return;
  const std::string launch = journal::Field(event, "launch");
  if (!launch.empty()) launches.insert(launch);
}

void Past::LookAgain(const std::vector<JournalEvent>& merged) {
  early_stopped.clear();
  for (const JournalEvent& event : merged) LookForEarlyStop(event, early_stopped);
}

void Past::RetryEarlyStopped(std::vector<JournalEvent>& records) const {
  for (const auto& [stage, attempt] : early_stopped) {
    JournalEvent& event = records.emplace_back();
    event.type = journal::kRetried;
    event.stage = stage;
    event.attempt = attempt;
    event.fields = {{"by", "resume --finish-early-stopped"}};
  }
}

}  // namespace headsweep
