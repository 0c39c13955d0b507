#include "trainer/fault_injection.h"

#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <map>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

std::optional<std::int64_t> ParseNumber(const std::string& text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

std::optional<std::int64_t> NumberFromEnvironment(const char* name) {
  const std::string text = Environment(name);
  if (text.empty()) return std::nullopt;
  const auto number = ParseNumber(text);
  if (!number) throw ConfigError(fmt::format("{}={}: expected a number", name, text));
  return number;
}

int SignalOf(const std::string& name) {
  static const std::map<std::string, int> signals = {
      {"SIGKILL", SIGKILL}, {"SIGSEGV", SIGSEGV}, {"SIGABRT", SIGABRT}, {"SIGBUS", SIGBUS},
      {"SIGFPE", SIGFPE},   {"SIGILL", SIGILL},   {"SIGTERM", SIGTERM}, {"SIGINT", SIGINT}};
  const auto found = signals.find(name);
  return found == signals.end() ? 0 : found->second;
}

}  // namespace

FaultPlan FaultsFromEnvironment(int attempt, int rank) {
  FaultPlan plan;
  const auto only = NumberFromEnvironment("HEADSWEEP_TRAINER_FAULT_ATTEMPT");
  const auto only_rank = NumberFromEnvironment("HEADSWEEP_TRAINER_FAULT_RANK");
  if ((only && *only != attempt) || (only_rank && *only_rank != rank)) return plan;
  plan.hang_at = NumberFromEnvironment("HEADSWEEP_TRAINER_HANG_AT");
  const std::string text = Environment("HEADSWEEP_TRAINER_DIE_AT");
  if (text.empty()) return plan;
  const auto colon = text.find(':');
  const std::string how = colon == std::string::npos ? "" : text.substr(colon + 1);
  plan.die_at = ParseNumber(text.substr(0, colon));
  plan.signal = SignalOf(how);
  const auto code = ParseNumber(how);
  if (!plan.die_at || (plan.signal == 0 && (!code || *code > 255))) {
    throw ConfigError(
        fmt::format("HEADSWEEP_TRAINER_DIE_AT={}: expected <step>:<signal or exit code>, as in 7:SIGKILL "
                    "or 7:3",
                    text));
  }
  plan.exit_code = static_cast<int>(code.value_or(0));
  return plan;
}

void FaultyReporter::Progress(const std::string& phase, std::int64_t step, std::int64_t steps, double loss,
                              double tokens_per_second) {
  next_.Progress(phase, step, steps, loss, tokens_per_second);
  if (phase != "train" && phase != "score" && phase != "prune") return;
  if (plan_.die_at == step) {
    if (plan_.signal == 0) ::_exit(plan_.exit_code);
    ::raise(plan_.signal);
  }
  while (plan_.hang_at == step) ::pause();
}

}  // namespace headsweep
