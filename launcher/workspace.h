// Workspace: where everything is on disk. The one place that knows the paths of a workspace:
//   <root>/sweeps/<name>/{sweep.toml, journal.jsonl, launcher.lock, live.json, requests/, jobs/<n>/,
//                         results.h5, report.html,
//                         launchers/<id>/{launcher.json, beat, journal.jsonl, live.json, requests/}}   see LEASES.md
//   <root>/trials/<id>/{config.toml, attempt-<n>/{log.txt, metrics.h5}, checkpoint/step-<k>/, result.h5,
//   running.lock} <root>/data/<fingerprint>/…                     prepared corpora, see data/corpus.h
// Nothing here creates anything; a workspace exists once something was written into it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"

namespace headsweep {

class Workspace {
 public:
  // root may be relative to the current directory; root() is absolute, without "." and "..".
  explicit Workspace(const std::string& root);
  const std::string& root() const { return root_; }

  std::string SweepsRoot() const { return root_ + "/sweeps"; }
  std::string SweepDirectory(const std::string& sweep) const { return SweepsRoot() + "/" + sweep; }
  std::string SweepToml(const std::string& sweep) const { return SweepDirectory(sweep) + "/sweep.toml"; }
  std::string Journal(const std::string& sweep) const { return SweepDirectory(sweep) + "/journal.jsonl"; }
  std::string Requests(const std::string& sweep) const { return SweepDirectory(sweep) + "/requests"; }
  std::string Live(const std::string& sweep) const { return SweepDirectory(sweep) + "/live.json"; }
  std::string Lock(const std::string& sweep) const { return SweepDirectory(sweep) + "/launcher.lock"; }
  std::string Launchers(const std::string& sweep) const { return SweepDirectory(sweep) + "/launchers"; }
  // Submissions to a batch system, one directory each: job_record.h.
  std::string Jobs(const std::string& sweep) const { return SweepDirectory(sweep) + "/jobs"; }
  std::string Results(const std::string& sweep) const { return SweepDirectory(sweep) + "/results.h5"; }
  std::string Report(const std::string& sweep) const { return SweepDirectory(sweep) + "/report.html"; }

  std::string TrialsRoot() const { return root_ + "/trials"; }
  std::string Trial(const std::string& stage) const { return TrialsRoot() + "/" + stage; }
  std::string TrialConfig(const std::string& stage) const { return Trial(stage) + "/config.toml"; }
  std::string TrialResult(const std::string& stage) const { return Trial(stage) + "/result.h5"; }
  // Held (flock) by the process tree that works on the trial, so that two sweeps never run one trial at once.
  std::string TrialLock(const std::string& stage) const { return Trial(stage) + "/running.lock"; }
  std::string AttemptDirectory(const std::string& stage, int attempt) const;
  std::string AttemptLog(const std::string& stage, int attempt) const;
  std::string AttemptMetrics(const std::string& stage, int attempt) const;

  std::string DataRoot() const { return root_ + "/data"; }

  // Names of the sweeps that have a sweep.toml; sorted.
  std::vector<std::string> Sweeps(const FileSystem& files) const;
  // name, or when it is empty the only sweep of the workspace. Throws ConfigError that says what there is.
  std::string ChooseSweep(const FileSystem& files, const std::string& name) const;
  // The id of the one trial that starts with prefix. Throws ConfigError when there is none, or more than one.
  std::string ChooseTrial(const FileSystem& files, const std::string& prefix) const;
  // Numbers of the attempts that have a directory; ascending.
  std::vector<int> Attempts(const FileSystem& files, const std::string& stage) const;

 private:
  std::string root_;
};

}  // namespace headsweep
