#include "launcher/result_check.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <set>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"
#include "launcher/control_channel.h"
#include "launcher/messages.h"
#include "launcher/process.h"
#include "results/stage_file.h"
#include "results/stage_format.h"
#include "results/summary_json.h"

namespace headsweep {
namespace {

constexpr std::size_t kStagesPerChild = 2000;  // 17 bytes each as arguments: far below the kernel's limit
constexpr double kChildTimeout = 600;

// Feeds what the child says to parser until it closes its end; false when it does not within the time-out.
bool ReadToEnd(int descriptor, LineParser& parser, const LineParser::Receiver& receiver) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(kChildTimeout);
  std::array<char, 65536> buffer;
  while (true) {
    pollfd wait = {descriptor, POLLIN, 0};
    if (::poll(&wait, 1, 1000) <= 0) {
      if (std::chrono::steady_clock::now() >= deadline) return false;
      continue;
    }
    const ssize_t got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got <= 0) return true;
    parser.Feed({buffer.data(), static_cast<std::size_t>(got)}, receiver);
  }
}

void CheckSome(const Workspace& workspace, const std::vector<std::string>& stages, ResultCheck& check) {
  ProcessSpec spec;
  spec.command = {ProgramPath(), "read-results", "--workspace", workspace.root()};
  spec.command.insert(spec.command.end(), stages.begin(), stages.end());
  spec.control_channel = true;
  const SpawnedProcess child = Spawn(spec);
  LineParser parser;
  const bool ended = ReadToEnd(child.control, parser, [&](const nlohmann::json& line) {
    const std::string stage = message::Text(line, "stage");
    if (line.contains("damaged")) {
      check.damaged[stage] = message::Text(line, "damaged");
    } else {
      check.done[stage] = message::Text(line, "summary");
    }
  });
  ::close(child.control);
  if (!ended) SignalGroup(child.pid, SIGKILL);
  const auto status = WaitFor(child.pid, 30);
  if (ended && status == ExitStatus{}) return;
  LogWarning("reading finished results: the child {}; what it did not get to is taken as it is",
             status ? "ended with " + ToString(*status) : "does not end");
}

// Of a stage whose summary is known: are the bytes those that were sealed? false: they do not say.
bool CheckBytes(const std::string& path, const FileSystem& files, const std::string& stage, const std::string& summary,
                ResultCheck& check) {
  try {
    if (CheckStageBytes(files.ReadFile(path), path).state != StageFileState::kComplete) return false;
    check.done[stage] = summary;
  } catch (const Error& error) {
    check.damaged[stage] = error.what();
  }
  return true;
}

}  // namespace

ResultCheck CheckResults(const Workspace& workspace, const FileSystem& files, const std::vector<std::string>& stages,
                         const std::map<std::string, std::string>& recorded) {
  std::vector<std::string> present;  // to be read in a child
  ResultCheck check;
  for (const std::string& stage : stages) {
    if (!files.Exists(workspace.TrialResult(stage))) continue;
    const auto known = recorded.find(stage);
    if (known == recorded.end() || !CheckBytes(workspace.TrialResult(stage), files, stage, known->second, check))
      present.push_back(stage);
  }
  for (std::size_t first = 0; first < present.size(); first += kStagesPerChild) {
    const std::size_t last = std::min(present.size(), first + kStagesPerChild);
    CheckSome(workspace,
              {present.begin() + static_cast<std::ptrdiff_t>(first),
               present.begin() + static_cast<std::ptrdiff_t>(last)},
              check);
  }
  for (const std::string& stage : present)
    if (!check.damaged.contains(stage)) check.done.try_emplace(stage, "");
  return check;
}

std::string SetAsideDamaged(const Workspace& workspace, FileSystem& files, const std::string& stage) {
  const std::string result = workspace.TrialResult(stage);
  int number = 1;
  while (files.Exists(fmt::format("{}.damaged-{}", result, number))) ++number;
  const std::string aside = fmt::format("{}.damaged-{}", result, number);
  files.Rename(result, aside);
  files.SyncDirectory(workspace.Trial(stage));
  return aside;
}

int ReadResultsInChild(const Workspace& workspace, const std::vector<std::string>& stages) {
  for (const std::string& stage : stages) {
    nlohmann::json line = {{"stage", stage}};
    try {
      line["summary"] = ToJson(ReadStageFile(workspace.TrialResult(stage)).summary);
    } catch (const Error& error) {
      line["damaged"] = error.what();
    }
    const std::string text = DumpJson(line) + "\n";
    for (std::size_t sent = 0; sent < text.size();) {
      const ssize_t got = ::send(kControlDescriptor, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) throw IoError("write", "control channel", errno, "this command is for headsweep itself");
      sent += static_cast<std::size_t>(got);
    }
  }
  return kExitDone;
}

}  // namespace headsweep
