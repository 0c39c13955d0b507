#include "results/order_labels.h"

#include <nlohmann/json.hpp>

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

void OrderLabels::Look(const CollectStage& stage) {
  if (stage.kind == "train") return;
  Settings settings = PruneSettings(stage);
  auto& of_order = values_[settings["order"]];
  for (const auto& [key, value] : settings) of_order[key].insert(value);
}

std::string OrderLabels::Of(const CollectStage& stage) const {
  if (stage.kind == "train") return "";
  Settings settings = PruneSettings(stage);
  std::string label = settings["order"];
  const auto& of_order = values_.at(settings["order"]);
  for (const auto& [key, value] : settings) {
    const auto seen = of_order.find(key);
    if (seen != of_order.end() && seen->second.size() > 1) label += ", " + key + "=" + value;
  }
  return label;
}

}  // namespace headsweep
