#include "launcher/commands/run_options.h"

#include <filesystem>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

int CountFrom(const Arguments& arguments, const char* name) {
  constexpr int kMost = 4096;  // chosen: beyond any node, and a typing error below it costs no memory
  const int count = arguments.Number(name);
  if (count < 0 || count > kMost)
    throw ConfigError(fmt::format("--{} {}: give a number from 0 to {}", name, count, kMost));
  return count;
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
  options.take_over = arguments.Has("take-over");
  return options;
}

std::string AbsolutePath(const std::string& path) {
  return std::filesystem::absolute(path).lexically_normal().string();
}

}  // namespace headsweep
