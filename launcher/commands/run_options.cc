#include "launcher/commands/run_options.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "cluster/base/errors.h"
#include "cluster/slurm/answers.h"

namespace headsweep {
namespace {

int CountFrom(const Arguments& arguments, const char* name) {
  constexpr int kMost = 4096;  // chosen: beyond any node, and a typing error below it costs no memory
  const int count = arguments.Number(name);
  if (count < 0 || count > kMost)
    throw ConfigError(fmt::format("--{} {}: give a number from 0 to {}", name, count, kMost));
  return count;
}

// Seconds from now to the end of the allocation; 0: not known. From --time-limit, or from the job that started this process.
double TimeLimitFrom(const Arguments& arguments) {
  const std::string text = arguments.Text("time-limit");
  if (!text.empty()) {
    const std::optional<double> seconds = ParseDuration(text);
    if (!seconds || !(*seconds > 0))
      throw ConfigError(fmt::format("--time-limit {}: give minutes, HH:MM:SS or D-HH:MM:SS", text));
    return *seconds;
  }
  const char* left = std::getenv(kSecondsLeftVariable);
  return left != nullptr ? std::max(0.0, std::atof(left)) : 0;
}

}  // namespace

SessionOptions SessionOptionsFrom(const Arguments& arguments) {
  SessionOptions options;
  options.workspace = arguments.Text("workspace");
  options.slots = CountFrom(arguments, "slots");
  options.threads = CountFrom(arguments, "threads");
  options.quiet = arguments.Has("quiet");
  options.report = !arguments.Has("no-report");
  options.finish_early_stopped = arguments.Has("finish-early-stopped");
  options.join = arguments.Has("join");
  options.time_limit = TimeLimitFrom(arguments);
  options.take_over = arguments.Has("take-over");
  return options;
}

std::string AbsolutePath(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace headsweep
