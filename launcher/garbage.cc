#include "launcher/garbage.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string_view>

#include "cluster/base/errors.h"
#include "launcher/journal.h"
#include "launcher/planned_sweep.h"
#include "launcher/trial_lock.h"

namespace headsweep {
namespace {

constexpr std::string_view kTemporary = ".tmp-";
constexpr int kKeptWithoutResult = 2;  // as the trainer keeps them: the newest may turn out to be damaged

std::int64_t SizeOf(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (!fs::is_directory(path, ignored)) return static_cast<std::int64_t>(fs::file_size(path, ignored));
  std::int64_t bytes = 0;
  for (auto it = fs::recursive_directory_iterator(path, ignored); !ignored && it != fs::recursive_directory_iterator();
       it.increment(ignored)) {
    std::error_code absent;
    if (it->is_regular_file(absent)) bytes += static_cast<std::int64_t>(it->file_size(absent));
  }
  return bytes;
}

struct Used {
  std::set<std::string> stages, texts;
};

Used FindUsed(const Workspace& workspace, const FileSystem& files) {
  Used used;
  for (const std::string& name : workspace.Sweeps(files)) {
    const PlannedSweep planned = PlanSweep(LoadKeptSweep(workspace, files, name), FingerprintOfSource());
    for (const PlanStage& stage : planned.plan.stages) {
      used.stages.insert(planned.plan.Id(stage));
    }
    for (const auto& [text, fingerprint] : planned.plan.fingerprints) used.texts.insert(fingerprint);
  }
  return used;
}

// 17 of "step-17".
std::optional<std::int64_t> StepOf(std::string_view name) {
  constexpr std::string_view kStep = "step-";
  std::int64_t step = 0;
  if (!name.starts_with(kStep)) return std::nullopt;
  const auto parsed = std::from_chars(name.data() + kStep.size(), name.data() + name.size(), step);
  if (parsed.ec != std::errc() || parsed.ptr != name.data() + name.size()) return std::nullopt;
  return step;
}

class Collector {
 public:
  Collector(const Workspace& workspace, const FileSystem& files) : workspace_(workspace), files_(files) {}

  std::vector<Garbage> Collect() {
    const Used used = FindUsed(workspace_, files_);
    for (const std::string& trial : files_.List(workspace_.TrialsRoot())) {
      if (!used.stages.contains(trial)) {
        Add(workspace_.Trial(trial), "no sweep of this workspace has this trial", trial);
      } else {
        LookAtTrial(trial);
      }
    }
    for (const std::string& text : files_.List(workspace_.DataRoot())) {
      const std::string path = JoinPath(workspace_.DataRoot(), text);
      if (!files_.IsDirectory(path)) continue;
      if (text.find(kTemporary) != std::string::npos) {
        Add(path, kUnfinished);
      } else if (!used.texts.contains(text)) {
        Add(path, "no sweep of this workspace uses this text");
      }
    }
    return std::move(found_);
  }

 private:
  static constexpr const char* kUnfinished = "never finished by a process that is gone";

  void Add(const std::string& path, std::string why, const std::string& trial = "") {
    found_.push_back({path, SizeOf(path), std::move(why), trial});
  }

  void LookAtTrial(const std::string& trial) {
    const std::string directory = workspace_.Trial(trial);
    const bool done = files_.Exists(workspace_.TrialResult(trial));
    for (const std::string& name : files_.List(directory)) {
      const std::string path = JoinPath(directory, name);
      if (name.find(kTemporary) != std::string::npos || name.starts_with("claim-")) Add(path, kUnfinished, trial);
      if (name.starts_with("lease-") || name.starts_with("lost-")) Add(path, "the lease of a launcher that is gone", trial);
      if (done && name.starts_with("result.h5.damaged")) Add(path, "it was damaged, and there is a good one", trial);
    }
    for (const int attempt : workspace_.Attempts(files_, trial)) {
      const std::string metrics = workspace_.AttemptDirectory(trial, attempt) + "/metrics.h5";
      if (done && files_.Exists(metrics)) Add(metrics, "result.h5 holds it all", trial);
    }
    LookAtCheckpoints(trial, done ? 1 : kKeptWithoutResult);
  }

  void LookAtCheckpoints(const std::string& trial, int keep) {
    const std::string directory = workspace_.Trial(trial) + "/checkpoint";
    if (!files_.IsDirectory(directory)) return;
    std::vector<std::int64_t> steps;
    for (const std::string& name : files_.List(directory)) {
      if (name.find(kTemporary) != std::string::npos) Add(JoinPath(directory, name), kUnfinished, trial);
      if (const auto step = StepOf(name)) steps.push_back(*step);
    }
    std::sort(steps.rbegin(), steps.rend());
    for (std::size_t i = static_cast<std::size_t>(keep); i < steps.size(); ++i)
      Add(fmt::format("{}/step-{}", directory, steps[i]), fmt::format("superseded by step-{}", steps.front()), trial);
  }

  const Workspace& workspace_;
  const FileSystem& files_;
  std::vector<Garbage> found_;
};

}  // namespace

std::vector<Garbage> FindGarbage(const Workspace& workspace, const FileSystem& files) {
  return Collector(workspace, files).Collect();
}

std::vector<Garbage> DeleteGarbage(const Workspace& workspace, FileSystem& files, const Clock& clock,
                                   const std::vector<Garbage>& garbage) {
  std::map<std::string, TrialLock> locks;
  std::vector<Garbage> deleted;
  std::vector<JournalEvent> records;
  for (const Garbage& item : garbage) {
    if (!item.trial.empty()) {
      const auto [lock, is_new] = locks.try_emplace(item.trial);
      if (is_new && !lock->second.TryLock(workspace.TrialLock(item.trial))) lock->second = TrialLock();
      if (lock->second.descriptor() < 0) continue;  // somebody works on it
    }
    JournalEvent event;
    event.type = journal::kDeleted;
    event.fields = {{"path", item.path.substr(workspace.root().size() + 1)},
                    {"bytes", fmt::format("{}", item.bytes)},
                    {"why", item.why}};
    records.push_back(std::move(event));
    deleted.push_back(item);
  }
  Journal(files, workspace.root() + "/gc.jsonl", clock).Append(std::move(records));
  for (const Garbage& item : deleted) files.RemoveAll(item.path);
  return deleted;
}

}  // namespace headsweep
