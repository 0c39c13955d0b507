#include "launcher/requests.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/messages.h"

namespace headsweep {
namespace {

std::optional<Request> Parse(const std::string& content) {
  const nlohmann::json json = ParseJson(content);
  if (!json.is_object() || !json.contains("launcher")) return std::nullopt;
  const std::optional<LockOwner> launcher = ParseLockOwner(message::Text(json, "launcher"));
  if (!launcher) return std::nullopt;
  Request request{message::Text(json, "type"), {}, message::Text(json, "by"), *launcher};
  if (json.contains("stages") && json["stages"].is_array()) {
    for (const nlohmann::json& stage : json["stages"]) {
      if (stage.is_string()) request.stages.push_back(stage.get<std::string>());
    }
  }
  return request;
}

}  // namespace

std::string WriteRequest(FileSystem& files, const std::string& directory, const Request& request) {
  files.CreateDirectories(directory);
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::string path = fmt::format("{}/{:020d}-{}-{}.json", directory,
                                       std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
                                       ThisProcess().host, ::getpid());
  const nlohmann::json json = {{"type", request.type},
                               {"stages", request.stages},
                               {"by", request.by},
                               {"launcher", FormatLockOwner(request.launcher)}};
  WriteFileDurably(files, path, DumpJson(json) + "\n");
  return path;
}

std::vector<std::pair<std::string, Request>> ReadRequests(FileSystem& files, const std::string& directory,
                                                          const LockOwner& launcher) {
  std::vector<std::pair<std::string, Request>> requests;
  if (!files.Exists(directory)) return requests;
  std::vector<std::string> names = files.List(directory);
  std::sort(names.begin(), names.end());
  for (const std::string& name : names) {
    if (!name.ends_with(".json")) continue;  // being written
    const std::string path = directory + "/" + name;
    const std::optional<Request> request = Parse(files.ReadFile(path));
    if (request && request->launcher == launcher) {
      requests.emplace_back(path, *request);
    } else {
      files.Remove(path);
    }
  }
  return requests;
}

Answer AwaitAnswer(const FileSystem& files, const LockOwner& launcher, const std::string& path, double timeout_seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (files.Exists(path)) {
    const bool gone = FindStateOf(launcher) == OwnerState::kDead;
    if (!files.Exists(path)) break;
    if (gone) return Answer::kGone;
    if (std::chrono::steady_clock::now() > deadline) return Answer::kNone;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return Answer::kObeyed;
}

std::string ThisUser() {
  const passwd* user = ::getpwuid(::getuid());
  return fmt::format("{} on {}", user != nullptr ? user->pw_name : std::to_string(::getuid()),
                     ThisProcess().host);
}

}  // namespace headsweep
