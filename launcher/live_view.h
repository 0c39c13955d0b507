// LiveView: what a running sweep looks like at this moment, in <workspace>/sweeps/<name>/live.json (of a launcher
// that shares its sweep: launchers/<id>/live.json): rewritten
// about once a second by the coordinator, for `headsweep watch` and `status` on any machine that sees the
// workspace. Not durable and not the truth: that is the journal. One JSON object:
//   time         unix seconds of the writer's clock
//   fraction     of the work done, by FLOPs, 0 … 1
//   line         "12/70 stages, 3 running, 41 %, ETA 2m10s"
//   seconds_left number or null
//   slots, busy_slots, paused, stopping
//   short_of_memory  slots are free, but the devices have no memory left for what waits
//   running      [{stage, attempt, phase, step, steps, loss, tokens_per_second}]
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"

namespace headsweep {

struct LiveTrial {
  std::string stage;
  int attempt = 0;
  std::string phase;
  std::int64_t step = 0, steps = 0;
  double loss = 0, tokens_per_second = 0;
};

struct LiveView {
  double time = 0;  // filled in by the writer
  double fraction = 0;
  std::string line;
  std::optional<double> seconds_left;
  int slots = 0, busy_slots = 0;
  bool paused = false, stopping = false, short_of_memory = false;
  std::vector<LiveTrial> running;

  const LiveTrial* Find(const std::string& stage, int attempt) const;
};

// Of several launchers of one sweep (at least one view): what they do together. Each counts the whole sweep, but sees only its
// own trials run; the time left is what their speeds add up to.
LiveView Combine(const std::vector<LiveView>& views);

// Replaces the file in one step. Throws IoError.
void WriteLiveView(FileSystem& files, const std::string& path, const LiveView& view);

// nullopt: there is none that can be read.
std::optional<LiveView> ReadLiveView(const FileSystem& files, const std::string& path);

}  // namespace headsweep
