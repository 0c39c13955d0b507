// Checkpoints: <trial>/checkpoint/step-<k>/ with model.safetensors (weights, named as in ParameterLayout),
// optimizer.safetensors (AdamW's m and v), history.h5 (all metric rows so far) and state.json (step, data
// cursor, model shape, random-number seeds, checksums of the other files; written last). Sealed as one
// directory by rename, so a step-<k> that exists is complete. safetensors:
// https://github.com/huggingface/safetensors (8-byte length, JSON header, little-endian data).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"
#include "data/batches.h"
#include "results/stage_file.h"
#include "trainer/parameter_layout.h"

namespace headsweep {

struct Checkpoint {
  ModelShape shape;
  std::string stage_id;  // a checkpoint of another stage is refused, never silently continued
  std::int64_t step = 0;
  BatchCursor cursor;
  std::vector<float> parameters;  // layout order
  std::vector<float> m, v;        // empty in checkpoints without an optimiser (pruned models)
  StageTables history;
  double train_seconds = 0;
};

// Writes step-<k> under checkpoint_root durably, then removes older ones beyond `keep` (0 = keep all).
// Returns its path. fence: see SealInPlace.
std::string WriteCheckpoint(FileSystem& files, const std::string& checkpoint_root,
                            const Checkpoint& checkpoint, const Provenance& provenance, int keep,
                            const std::string& fence = "");
// Throws ConfigError when damaged (says which file and checksum) or of another stage.
Checkpoint ReadCheckpoint(const FileSystem& files, const std::string& path,
                          const std::string& expected_stage_id);
// Path of the newest complete checkpoint that reads back with right checksums; damaged ones are skipped with
// a warning.
std::optional<std::string> LatestCheckpoint(const FileSystem& files, const std::string& checkpoint_root);

// The one checksum of a model's weights that digests use.
std::uint64_t WeightsChecksum(const std::vector<float>& parameters);

}  // namespace headsweep
