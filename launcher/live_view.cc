#include "launcher/live_view.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "launcher/messages.h"
#include "launcher/progress_model.h"

namespace headsweep {

const LiveTrial* LiveView::Find(const std::string& stage, int attempt) const {
  for (const LiveTrial& trial : running) {
    if (trial.stage == stage && trial.attempt == attempt) return &trial;
  }
  return nullptr;
}

LiveView Combine(const std::vector<LiveView>& views) {
  if (views.size() == 1) return views.front();
  LiveView all;
  double speed = 0;  // in sweeps per second
  all.paused = true;
  for (const LiveView& view : views) {
    all.time = std::max(all.time, view.time);
    if (view.fraction >= all.fraction) {
      all.fraction = view.fraction;
      all.line = view.line;
    }
    if (view.seconds_left && *view.seconds_left > 0) speed += 1 / *view.seconds_left;
    all.slots += view.slots;
    all.busy_slots += view.busy_slots;
    all.paused &= view.paused;
    all.stopping |= view.stopping;
    all.short_of_memory |= view.short_of_memory;
    all.running.insert(all.running.end(), view.running.begin(), view.running.end());
  }
  if (speed > 0) all.seconds_left = 1 / speed;
  // "12/70 stages" of the one that has seen the most; what follows is of all.
  all.line = fmt::format("{}, {} launchers run {} trials, {:.0f} %", all.line.substr(0, all.line.find(',')), views.size(),
                         all.running.size(), 100 * all.fraction);
  if (all.seconds_left) all.line += ", ETA " + FormatDuration(*all.seconds_left);
  return all;
}

void WriteLiveView(FileSystem& files, const std::string& path, const LiveView& view) {
  const double now =
      std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  nlohmann::json json = {
      {"time", now},
      {"fraction", view.fraction},
      {"line", view.line},
      {"seconds_left", view.seconds_left ? nlohmann::json(*view.seconds_left) : nlohmann::json()},
      {"slots", view.slots},
      {"busy_slots", view.busy_slots},
      {"paused", view.paused},
      {"stopping", view.stopping},
      {"short_of_memory", view.short_of_memory},
      {"running", nlohmann::json::array()}};
  for (const LiveTrial& trial : view.running) {
    json["running"].push_back({{"stage", trial.stage},
                               {"attempt", trial.attempt},
                               {"phase", trial.phase},
                               {"step", trial.step},
                               {"steps", trial.steps},
                               {"loss", trial.loss},
                               {"tokens_per_second", trial.tokens_per_second}});
  }
  const std::string temporary = path + ".tmp";
  files.WriteFile(temporary, DumpJson(json) + "\n");
  files.Rename(temporary, path);
}

std::optional<LiveView> ReadLiveView(const FileSystem& files, const std::string& path) {
  nlohmann::json json;
  try {
    if (!files.Exists(path)) return std::nullopt;
    json = ParseJson(files.ReadFile(path));
  } catch (const IoError&) {  // removed in between
    return std::nullopt;
  }
  if (!json.is_object()) return std::nullopt;
  LiveView view;
  view.time = message::Number(json, "time");
  view.fraction = message::Number(json, "fraction");
  view.line = message::Text(json, "line");
  if (json.contains("seconds_left") && json["seconds_left"].is_number())
    view.seconds_left = json["seconds_left"];
  view.slots = static_cast<int>(message::Integer(json, "slots"));
  view.busy_slots = static_cast<int>(message::Integer(json, "busy_slots"));
  view.paused = message::Flag(json, "paused");
  view.stopping = message::Flag(json, "stopping");
  view.short_of_memory = message::Flag(json, "short_of_memory");
  const auto running = json.find("running");
  if (running == json.end() || !running->is_array()) return view;
  for (const nlohmann::json& trial : *running) {
    view.running.push_back(
        {message::Text(trial, "stage"), static_cast<int>(message::Integer(trial, "attempt")),
         message::Text(trial, "phase"), message::Integer(trial, "step"), message::Integer(trial, "steps"),
         message::Number(trial, "loss"), message::Number(trial, "tokens_per_second")});
  }
  return view;
}

}  // namespace headsweep
