#include "launcher/workspace.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "cluster/base/errors.h"
#include "launcher/nearest.h"

namespace headsweep {
namespace {

constexpr std::string_view kAttemptPrefix = "attempt-";

std::string JoinNames(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace

Workspace::Workspace(const std::string& root) {
  root_ = std::filesystem::absolute(root).lexically_normal().string();
  while (root_.size() > 1 && root_.back() == '/') root_.pop_back();
}

std::string Workspace::AttemptDirectory(const std::string& stage, int attempt) const {
  return Trial(stage) + "/" + std::string(kAttemptPrefix) + std::to_string(attempt);
}

std::string Workspace::AttemptMetrics(const std::string& stage, int attempt) const {
  return AttemptDirectory(stage, attempt) + "/metrics.h5";
}

std::string Workspace::AttemptLog(const std::string& stage, int attempt) const {
  return AttemptDirectory(stage, attempt) + "/log.txt";
}

std::vector<std::string> Workspace::Sweeps(const FileSystem& files) const {
  std::vector<std::string> names = files.List(SweepsRoot());
  std::erase_if(names, [&](const std::string& name) { return !files.Exists(SweepToml(name)); });
  return names;
}

std::string Workspace::ChooseSweep(const FileSystem& files, const std::string& name) const {
  const std::vector<std::string> names = Sweeps(files);
  if (names.empty())
    throw ConfigError(
        fmt::format("no sweep in workspace {}; start one with `headsweep run SWEEP.toml`, or name "
                    "another workspace with --workspace",
                    root_));
  if (name.empty()) {
    if (names.size() == 1) return names.front();
    throw ConfigError(
        fmt::format("workspace {} has {} sweeps; say which: {}", root_, names.size(), JoinNames(names)));
  }
  if (std::find(names.begin(), names.end(), name) != names.end()) return name;
  const std::string nearest = NearestName(name, names);
  throw ConfigError(fmt::format("no sweep \"{}\" in workspace {}{}; there is: {}", name, root_,
                                nearest.empty() ? "" : "; did you mean \"" + nearest + "\"?",
                                JoinNames(names)));
}

std::string Workspace::ChooseTrial(const FileSystem& files, const std::string& prefix) const {
  std::vector<std::string> matches;
  for (const std::string& id : files.List(TrialsRoot()))
    if (id.starts_with(prefix)) matches.push_back(id);
  if (matches.size() == 1) return matches.front();
  if (std::find(matches.begin(), matches.end(), prefix) != matches.end()) return prefix;
  if (matches.empty())
    throw ConfigError(fmt::format("no trial in {} starts with \"{}\"; `headsweep status` lists the ids",
                                  TrialsRoot(), prefix));
  throw ConfigError(
      fmt::format("\"{}\" fits {} trials, give more digits: {}", prefix, matches.size(), JoinNames(matches)));
}

std::vector<int> Workspace::Attempts(const FileSystem& files, const std::string& stage) const {
  std::vector<int> attempts;
  for (const std::string& name : files.List(Trial(stage))) {
    if (!name.starts_with(kAttemptPrefix)) continue;
    int number = 0;
    const char* end = name.data() + name.size();
    const auto parsed = std::from_chars(name.data() + kAttemptPrefix.size(), end, number);
    if (parsed.ec == std::errc() && parsed.ptr == end && number > 0) attempts.push_back(number);
  }
  std::sort(attempts.begin(), attempts.end());
  return attempts;
}

}  // namespace headsweep
