#include "launcher/timing.h"

#include <cmath>
#include <cstdlib>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// Chosen: five looks of the coordinator. On a file system over a network take 20 s or more.
constexpr double kLeastLease = 1;

void Override(const char* variable, double& seconds) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == '\0') return;
  char* end = nullptr;
  const double value = std::strtod(text, &end);
  if (*end != '\0' || !std::isfinite(value) || !(value > 0))
    throw ConfigError(fmt::format("{}={}: give a positive number of seconds", variable, text));
  seconds = value;
}

}  // namespace

Timing Timing::FromEnvironment() {
  Timing timing;
  Override("HEADSWEEP_KILL_GRACE", timing.kill_grace);
  Override("HEADSWEEP_STOP_GRACE", timing.stop_grace);
  Override("HEADSWEEP_HANG_FLOOR", timing.hang_floor);
  Override("HEADSWEEP_NODE_TIMEOUT", timing.node_timeout);
  Override("HEADSWEEP_RETURN_TIMEOUT", timing.return_timeout);
  Override("HEADSWEEP_WELCOME_TIMEOUT", timing.welcome_timeout);
  Override("HEADSWEEP_PROBE_TIMEOUT", timing.probe_timeout);
  Override("HEADSWEEP_LEASE", timing.lease);
  if (!(timing.lease >= kLeastLease))
    throw ConfigError(fmt::format(
        "HEADSWEEP_LEASE={}: at least {} s. Launchers beat some times in a lease, and look around every 0.2 s; with a "
        "shorter one those that live would be taken for gone",
        timing.lease, kLeastLease));
  if (timing.agent_timeout() < timing.heartbeat * 3)
    throw ConfigError(fmt::format(
        "HEADSWEEP_NODE_TIMEOUT={} is too short for HEADSWEEP_KILL_GRACE={}: two thirds of it, less "
        "the grace, must be at least {} s",
        timing.node_timeout, timing.kill_grace, timing.heartbeat * 3));
  return timing;
}

}  // namespace headsweep
