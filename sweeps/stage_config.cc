#include "sweeps/stage_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "cluster/base/json.h"
#include "sweeps/document.h"
#include "sweeps/resolve.h"
#include "sweeps/schema.h"

namespace headsweep {
namespace {

// "model.heads" -> {"model", "heads"}; "seed" -> {"", "seed"}.
std::pair<std::string, std::string> SplitKey(const std::string& name) {
  const std::size_t dot = name.find('.');
  if (dot == std::string::npos) return {"", name};
  return {name.substr(0, dot), name.substr(dot + 1)};
}

std::string QuoteJson(const std::string& text) {
  return DumpJson(nlohmann::json(text));
}

// Heads are always the whole list, so that 4 and [4, 4] are one identity.
std::string ToJson(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return QuoteJson(*text);
  if (const auto* heads = std::get_if<std::vector<std::int64_t>>(&value)) {
    return fmt::format("[{}]", fmt::join(*heads, ","));
  }
  return FormatValue(value);
}

std::string JsonObject(const std::map<std::string, std::string>& members) {
  std::string text = "{";
  for (const auto& [name, value] : members) {
    text += fmt::format("{}{}:{}", text.size() > 1 ? "," : "", QuoteJson(name), value);
  }
  return text + "}";
}

const char* KindName(StageKind kind) { return kind == StageKind::kTrain ? "train" : "prune"; }

constexpr const char* kSections[] = {"", "task", "model", "train", "prune", "run", "early_stopping"};

// One section of config.toml, heads in their short form.
std::string FormatSection(const std::string& section, const StageConfig& config) {
  std::string text;
  for (const KeySpec& key : AllKeys()) {
    const auto [part, name] = SplitKey(key.name);
    if (part == section) text += fmt::format("{} = {}\n", name, FormatValue(GetField(key, config)));
  }
  return text;
}

// What ParseStageConfig reads besides the table's keys.
struct StageHeader {
  std::string kind = "train", id, parent;
};

void ReadHeaderText(const RawEntry& entry, std::string& to, Complaints& complaints) {
  if (const auto* text = std::get_if<std::string>(&entry.value.data)) {
    to = *text;
  } else {
    complaints.Add(entry.value.at, fmt::format("{} must be text, not {}", entry.key, TypeName(entry.value)));
  }
}

class StageReader {
 public:
  StageReader(const std::string& text, const std::string& file)
      : complaints_(file), settings_(DefaultSettings()) {
    ReadTable(ParseDocument(text, complaints_), "");
  }

  StageConfig Finish() {
    StageConfig config;
    if (header_.kind != "train" && header_.kind != "prune") {
      complaints_.Add(kind_at_,
                      fmt::format("kind must be \"train\" or \"prune\", not {}", QuoteToml(header_.kind)));
    }
    Resolver resolver(settings_, complaints_);
    resolver.Resolve(config);
    config.kind = header_.kind == "prune" ? StageKind::kPrune : StageKind::kTrain;
    config.id = header_.id;
    config.parent = header_.parent;
    if (config.kind == StageKind::kPrune && config.prune.order.empty()) {
      complaints_.Add(kind_at_, "a prune stage needs prune.order");
    }
    complaints_.ThrowIfAny();
    return config;
  }

 private:
  void ReadTable(const RawTable& table, const std::string& prefix) {
    for (const RawEntry& entry : table) {
      const std::string name = prefix.empty() ? entry.key : prefix + "." + entry.key;
      if (name == "kind") {
        kind_at_ = entry.value.at;
        ReadHeaderText(entry, header_.kind, complaints_);
      } else if (name == "id") {
        ReadHeaderText(entry, header_.id, complaints_);
      } else if (name == "parent") {
        ReadHeaderText(entry, header_.parent, complaints_);
      } else if (const int key = FindKey(name); key >= 0) {
        ReadKey(key, entry.value);
      } else if (prefix.empty() &&
                 std::find(std::begin(kSections) + 1, std::end(kSections), name) != std::end(kSections)) {
        if (const auto* inner = std::get_if<RawTable>(&entry.value.data))
          ReadTable(*inner, name);
        else
          complaints_.Add(entry.value.at,
                          fmt::format("[{}] must be a section, not {}", name, TypeName(entry.value)));
      } else {
        ComplainUnknownKey(entry.at, name, known_, complaints_);
      }
    }
  }

  void ReadKey(int key, const RawValue& raw) {
    read_.push_back(std::make_unique<Setting>(ReadSetting(Key(key), raw, complaints_)));
    settings_[static_cast<std::size_t>(key)] = read_.back().get();
  }

  static std::vector<std::string> KnownNames() {
    std::vector<std::string> names = {"kind",  "id",    "parent", "task",          "model",
                                      "train", "prune", "run",    "early_stopping"};
    for (const KeySpec& key : AllKeys()) names.push_back(key.name);
    return names;
  }

  Complaints complaints_;
  SettingTable settings_;
  std::vector<std::unique_ptr<Setting>> read_;
  const std::vector<std::string> known_ = KnownNames();
  StageHeader header_;
  Position kind_at_;
};

}  // namespace

std::string CanonicalJson(const StageConfig& config) {
  std::map<std::string, std::map<std::string, std::string>> sections;
  for (const KeySpec& key : AllKeys()) {
    if (!key.in_identity() || (key.use == KeyUse::kPruning && config.kind != StageKind::kPrune)) continue;
    if (key.use == KeyUse::kLaterIdentity && GetField(key, config) == GetField(key, StageConfig())) continue;
    const auto [section, name] = SplitKey(key.name);
    sections[section][name] = ToJson(GetField(key, config));
  }
  std::map<std::string, std::string> top = sections[""];
  for (const auto& [section, members] : sections) {
    if (!section.empty()) top[section] = JsonObject(members);
  }
  top["kind"] = QuoteJson(KindName(config.kind));
  top["numerics"] = fmt::format("{}", kNumericsVersion);
  if (config.kind == StageKind::kPrune) top["parent"] = QuoteJson(config.parent);
  return JsonObject(top);
}

std::string ComputeStageId(const StageConfig& config) {
  HEADSWEEP_CHECK(!config.task.fingerprint.empty(), "a stage's identity needs the fingerprint of its data");
  HEADSWEEP_CHECK(config.kind == StageKind::kTrain || !config.parent.empty(),
                  "a prune stage's identity needs its parent");
  return HashHex(CanonicalJson(config));
}

std::string FormatStageConfig(const StageConfig& config) {
  std::string text =
      fmt::format("kind = {}\nid = {}\n", QuoteToml(KindName(config.kind)), QuoteToml(config.id));
  if (config.kind == StageKind::kPrune) text += fmt::format("parent = {}\n", QuoteToml(config.parent));
  for (const char* section : kSections) {
    if (std::string_view(section) == "prune" && config.kind == StageKind::kTrain) continue;
    if (*section != '\0') text += fmt::format("\n[{}]\n", section);
    text += FormatSection(section, config);
  }
  return text;
}

StageConfig ParseStageConfig(const std::string& text, const std::string& file) {
  return StageReader(text, file).Finish();
}

}  // namespace headsweep
