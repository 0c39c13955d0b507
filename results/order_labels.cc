#include "results/order_labels.h"

#include <nlohmann/json.hpp>
#include <set>

#include "cluster/base/json.h"

namespace headsweep {
namespace {

using Settings = std::map<std::string, std::string>;

std::string AsText(const nlohmann::json& value) {
  return value.is_string() ? value.get<std::string>() : DumpJson(value);
}

Settings PruneSettings(const CollectStage& stage) {
  Settings settings;
  const nlohmann::json config = ParseJson(stage.config_json);
  if (config.is_object() && config.contains("prune") && config["prune"].is_object()) {
    for (const auto& [key, value] : config["prune"].items()) settings[key] = AsText(value);
  } else if (const auto order = stage.columns.find("order"); order != stage.columns.end()) {
    if (const auto* text = std::get_if<std::string>(&order->second)) settings["order"] = *text;
  }
  for (const char* key : {"seed", "step"}) settings.erase(key);
  return settings;
}

}  // namespace

std::map<std::string, std::string> OrderLabels(const std::vector<CollectStage>& stages) {
  std::map<std::string, Settings> by_stage;
  std::map<std::string, std::map<std::string, std::set<std::string>>> values;  // order -> key -> values seen
  for (const CollectStage& stage : stages) {
    if (stage.kind == "train") continue;
    Settings settings = PruneSettings(stage);
    for (const auto& [key, value] : settings) values[settings["order"]][key].insert(value);
    by_stage[stage.id] = std::move(settings);
  }
  std::map<std::string, std::string> labels;
  for (auto& [id, settings] : by_stage) {
    std::string label = settings["order"];
    for (const auto& [key, value] : settings) {
      if (values[settings["order"]][key].size() > 1) label += ", " + key + "=" + value;
    }
    labels[id] = std::move(label);
  }
  return labels;
}

}  // namespace headsweep
