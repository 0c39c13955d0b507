// The 512 bytes in front of the HDF5 part of a stage file (HDF5 calls them a user block; h5py and h5dump skip
// them). They let a reader refuse a damaged or truncated file before HDF5 parses it: HDF5 1.10 may crash on
// damaged metadata. Grammar, worked example: results/SCHEMA.md, "The first 512 bytes". Writer and reader:
// stage_format.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace headsweep {

inline constexpr std::size_t kStageHeaderBytes = 512;

enum class StageFileState {
  kLive,      // being written, or left by a killed process: no checksum
  kComplete,  // closed; size and checksum of what follows the header are in it
};

struct StageHeader {
  int schema = 0;
  StageFileState state = StageFileState::kLive;
  std::uint64_t bytes = 0;     // of the HDF5 part; kComplete
  std::uint64_t checksum = 0;  // of the HDF5 part; kComplete
};

// Exactly kStageHeaderBytes.
std::string FormatStageHeader(const StageHeader& header);

// The state of a whole stage file's bytes, when they may be handed to HDF5. Throws IoError otherwise, saying
// whether the file is empty, foreign, of another schema version, truncated or damaged.
StageHeader CheckStageBytes(std::string_view file_bytes, const std::string& path);

}  // namespace headsweep
