#include "trainer/checkpoint.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "cluster/base/log.h"
#include "trainer/safetensors.h"

namespace headsweep {
namespace {

using nlohmann::json;

constexpr int kFormatVersion = 1;
constexpr const char* kModelFile = "model.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr const char* kHistoryFile = "history.h5";
constexpr const char* kStateFile = "state.json";
constexpr const char* kStepPrefix = "step-";
constexpr const char* kTemporary = ".tmp-";  // what follows is somebody's unfinished work

std::string StepName(std::int64_t step) { return fmt::format("{}{}", kStepPrefix, step); }

// 17 of "step-17"; nothing for any other name.
std::optional<std::int64_t> StepOf(const std::string& name) {
  const std::string_view prefix = kStepPrefix;
  if (!name.starts_with(prefix)) return std::nullopt;
  std::int64_t step = 0;
  const char* end = name.data() + name.size();
  const auto [stop, error] = std::from_chars(name.data() + prefix.size(), end, step);
  return error == std::errc() && stop == end && step >= 0 ? std::optional(step) : std::nullopt;
}

std::vector<std::int64_t> StepsIn(const FileSystem& files, const std::string& root) {  // newest first
  std::vector<std::int64_t> steps;
  for (const std::string& name : files.List(root)) {
    if (const auto step = StepOf(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

json ToJson(const ModelShape& shape) {
  return {{"vocabulary", shape.vocabulary},
          {"length", shape.length},
          {"embed", shape.embed},
          {"head_size", shape.head_size},
          {"feed_forward", shape.feed_forward},
          {"heads", shape.heads},
          {"norm", shape.norm},
          {"activation", shape.activation},
          {"positions", shape.positions},
          {"tied", shape.tied}};
}

ModelShape ShapeFromJson(const json& j) {
  ModelShape shape;
  j.at("vocabulary").get_to(shape.vocabulary);
  j.at("length").get_to(shape.length);
  j.at("embed").get_to(shape.embed);
  j.at("head_size").get_to(shape.head_size);
  j.at("feed_forward").get_to(shape.feed_forward);
  j.at("heads").get_to(shape.heads);
  j.at("norm").get_to(shape.norm);
  j.at("activation").get_to(shape.activation);
  j.at("positions").get_to(shape.positions);
  j.at("tied").get_to(shape.tied);
  return shape;
}

// --- Writing ---

void AddTensors(const ParameterLayout& layout, const std::string& prefix, const std::vector<float>& values,
                std::vector<TensorView>& tensors) {
  HEADSWEEP_CHECK(static_cast<std::int64_t>(values.size()) == layout.size(), "{} values for {} parameters",
                  values.size(), layout.size());
  for (const Parameter& parameter : layout.parameters()) {
    tensors.push_back({prefix + parameter.name,
                       parameter.dims,
                       {values.data() + parameter.offset, static_cast<std::size_t>(parameter.count)}});
  }
}

class CheckpointWriter {
 public:
  CheckpointWriter(FileSystem& files, std::string directory)
      : files_(files), directory_(std::move(directory)) {}

  void WriteTensors(const char* name, const std::vector<TensorView>& tensors,
                    const std::map<std::string, std::string>& metadata) {
    const std::string bytes = FormatSafetensors(tensors, metadata);
    files_.WriteFile(JoinPath(directory_, name), bytes);
    Record(name, bytes);
  }
  void WriteHistory(const Provenance& provenance, const StageTables& history) {
    const std::string path = JoinPath(directory_, kHistoryFile);
    WriteStageFile(path, provenance, history, StageSummary{});
    Record(kHistoryFile, files_.ReadFile(path));
  }
  // Last: names every other file with its size and checksum, and carries a checksum of itself.
  void WriteState(json state) {
    state["files"] = recorded_;
    const json sealed = {{"checksum", ChecksumHex(state.dump())}, {"state", state}};
    files_.WriteFile(JoinPath(directory_, kStateFile), sealed.dump(2) + "\n");
  }

 private:
  void Record(const char* name, const std::string& bytes) {
    recorded_[name] = {{"bytes", bytes.size()}, {"checksum", ChecksumHex(bytes)}};
  }
  FileSystem& files_;
  std::string directory_;
  json recorded_ = json::object();
};

// A directory is renamed before it is taken apart, so that no half of it ever bears a checkpoint's name.
void RemoveCheckpoint(FileSystem& files, const std::string& root, std::int64_t step) {
  const std::string path = JoinPath(root, StepName(step)), doomed = path + kTemporary + "removed";
  files.RemoveAll(doomed);
  files.Rename(path, doomed);
  files.RemoveAll(doomed);
}

// "step-12.tmp-3-4711": of attempt 3, by process 4711.
std::string TemporaryName(const std::string& path, int attempt) {
  return fmt::format("{}{}{}-{}", path, kTemporary, attempt, ::getpid());
}

// What attempts before this one left. A later attempt's is in use: this one has lost its trial and does not know it yet.
void RemoveTemporaries(FileSystem& files, const std::string& root, int attempt) {
  for (const std::string& name : files.List(root)) {
    const std::size_t at = name.find(kTemporary);
    if (at == std::string::npos) continue;
    int owner = 0;
    if (name.find('-', at + std::strlen(kTemporary)) != std::string::npos)
      owner = std::atoi(name.c_str() + at + std::strlen(kTemporary));
    if (owner <= attempt) files.RemoveAll(JoinPath(root, name));
  }
}

void RemoveOld(FileSystem& files, const std::string& root, std::int64_t newest, int keep) {
  if (keep <= 0) return;
  int kept = 0;
  for (const std::int64_t step : StepsIn(files, root)) {
    if (step <= newest && ++kept > keep) RemoveCheckpoint(files, root, step);
  }
}

// --- Reading ---

[[noreturn]] void Damaged(const std::string& path, const std::string& reason) {
  throw ConfigError(
      fmt::format("checkpoint {} is damaged: {}; remove it, then the one before it is used", path, reason));
}

json ReadState(const FileSystem& files, const std::string& path) {
  const std::string file = JoinPath(path, kStateFile);
  if (!files.Exists(file)) Damaged(path, std::string(kStateFile) + " is missing");
  try {
    const json sealed = json::parse(files.ReadFile(file));
    const json& state = sealed.at("state");
    if (const std::string sum = ChecksumHex(state.dump()); sealed.at("checksum") != sum) {
      Damaged(path, fmt::format("{} has checksum {}, not the {} written in it", kStateFile, sum,
                                sealed.at("checksum").dump()));
    }
    if (const int version = state.at("version").get<int>(); version != kFormatVersion) {
      throw ConfigError(fmt::format("checkpoint {} has format version {}; this program reads version {}",
                                    path, version, kFormatVersion));
    }
    return state;
  } catch (const json::exception& error) {
    Damaged(path, fmt::format("{} does not read ({})", kStateFile, error.what()));
  }
}

std::string ReadChecked(const FileSystem& files, const std::string& path, const std::string& name,
                        const json& state) {
  const json& recorded = state.at("files").at(name);
  const std::string file = JoinPath(path, name);
  if (!files.Exists(file)) Damaged(path, name + " is missing");
  std::string bytes = files.ReadFile(file);
  const auto expected = recorded.at("checksum").get<std::string>();
  if (const std::string sum = ChecksumHex(bytes); sum != expected) {
    Damaged(path, fmt::format("{} ({} bytes, checksum {}) is not what was written ({} bytes, checksum {})",
                              name, bytes.size(), sum, recorded.at("bytes").get<std::uint64_t>(), expected));
  }
  return bytes;
}

std::vector<float> ReadTensors(const Safetensors& tensors, const ParameterLayout& layout,
                               const std::string& prefix) {
  std::vector<float> values(static_cast<std::size_t>(layout.size()));
  for (const Parameter& parameter : layout.parameters()) {
    tensors.Read(prefix + parameter.name, parameter.dims,
                 {values.data() + parameter.offset, static_cast<std::size_t>(parameter.count)});
  }
  return values;
}

void CheckIntact(const FileSystem& files, const std::string& path) {
  const json state = ReadState(files, path);
  try {
    for (const auto& [name, recorded] : state.at("files").items()) ReadChecked(files, path, name, state);
  } catch (const json::exception& error) {
    Damaged(path, fmt::format("{} lacks something ({})", kStateFile, error.what()));
  }
}

// Whether path holds this very checkpoint already. Rewriting it would be the only moment at which it could be
// lost.
bool IsAlreadyWritten(const FileSystem& files, const std::string& path, const Checkpoint& checkpoint) {
  if (!files.Exists(path)) return false;
  try {
    CheckIntact(files, path);
    return ReadState(files, path).at("stage_id") == checkpoint.stage_id;
  } catch (const ConfigError& error) {
    LogWarning("{}; it is written anew", error.what());
    return false;
  }
}

}  // namespace

std::string WriteCheckpoint(FileSystem& files, const std::string& checkpoint_root,
                            const Checkpoint& checkpoint, const Provenance& provenance, int keep,
                            const std::string& fence) {
  const std::string path = JoinPath(checkpoint_root, StepName(checkpoint.step));
  files.CreateDirectories(checkpoint_root);
  RemoveTemporaries(files, checkpoint_root, provenance.attempt);
  if (!IsAlreadyWritten(files, path, checkpoint)) {
    const std::string temporary = TemporaryName(path, provenance.attempt);
    files.CreateDirectories(temporary);
    const ParameterLayout layout(checkpoint.shape);
    const std::map<std::string, std::string> metadata = {{"stage_id", checkpoint.stage_id},
                                                         {"step", std::to_string(checkpoint.step)}};
    CheckpointWriter writer(files, temporary);
    std::vector<TensorView> tensors;
    AddTensors(layout, "", checkpoint.parameters, tensors);
    writer.WriteTensors(kModelFile, tensors, metadata);
    if (!checkpoint.m.empty()) {
      tensors.clear();
      AddTensors(layout, "m.", checkpoint.m, tensors);
      AddTensors(layout, "v.", checkpoint.v, tensors);
      writer.WriteTensors(kOptimizerFile, tensors, metadata);
    }
    writer.WriteHistory(provenance, checkpoint.history);
    // Random numbers are functions of (seed, step, place): the configuration and the step are their whole
    // state.
    writer.WriteState(
        {{"version", kFormatVersion},
         {"stage_id", checkpoint.stage_id},
         {"step", checkpoint.step},
         {"cursor", {{"epoch", checkpoint.cursor.epoch}, {"position", checkpoint.cursor.position}}},
         {"shape", ToJson(checkpoint.shape)},
         {"train_seconds", checkpoint.train_seconds},
         {"config_toml", provenance.config_toml},
         {"written_by",
          {{"version", provenance.version},
           {"git_commit", provenance.git_commit},
           {"attempt", provenance.attempt}}}});
    if (files.Exists(path)) RemoveCheckpoint(files, checkpoint_root, checkpoint.step);
    SealInPlace(files, temporary, path, fence);
  }
  RemoveOld(files, checkpoint_root, checkpoint.step, keep);
  return path;
}

Checkpoint ReadCheckpoint(const FileSystem& files, const std::string& path,
                          const std::string& expected_stage_id) {
  const json state = ReadState(files, path);
  try {
    Checkpoint checkpoint;
    state.at("stage_id").get_to(checkpoint.stage_id);
    if (checkpoint.stage_id != expected_stage_id) {
      throw ConfigError(fmt::format("checkpoint {} belongs to stage {}, not to stage {}: it is not continued",
                                    path, checkpoint.stage_id, expected_stage_id));
    }
    state.at("step").get_to(checkpoint.step);
    state.at("cursor").at("epoch").get_to(checkpoint.cursor.epoch);
    state.at("cursor").at("position").get_to(checkpoint.cursor.position);
    state.at("train_seconds").get_to(checkpoint.train_seconds);
    checkpoint.shape = ShapeFromJson(state.at("shape"));
    const ParameterLayout layout(checkpoint.shape);
    const auto open = [&](const char* name) {
      return Safetensors(ReadChecked(files, path, name, state), JoinPath(path, name));
    };
    checkpoint.parameters = ReadTensors(open(kModelFile), layout, "");
    if (state.at("files").contains(kOptimizerFile)) {
      const Safetensors optimizer = open(kOptimizerFile);
      checkpoint.m = ReadTensors(optimizer, layout, "m.");
      checkpoint.v = ReadTensors(optimizer, layout, "v.");
    }
    ReadChecked(files, path, kHistoryFile, state);
    checkpoint.history = ReadStageFile(JoinPath(path, kHistoryFile)).tables;
    return checkpoint;
  } catch (const json::exception& error) {
    Damaged(path, fmt::format("{} lacks something ({})", kStateFile, error.what()));
  }
}

std::optional<std::string> LatestCheckpoint(const FileSystem& files, const std::string& checkpoint_root) {
  for (const std::int64_t step : StepsIn(files, checkpoint_root)) {
    const std::string path = JoinPath(checkpoint_root, StepName(step));
    try {
      CheckIntact(files, path);
      return path;
    } catch (const Error& error) {
      LogWarning("{}; skipped", error.what());
    }
  }
  return std::nullopt;
}

std::uint64_t WeightsChecksum(const std::vector<float>& parameters) {
  return Checksum(parameters.data(), parameters.size() * sizeof(float));
}

}  // namespace headsweep
