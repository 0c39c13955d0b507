// How long the launcher waits for what. One place, so that every wait has a deadline one can find; each can
// be set by an environment variable (seconds), for tests and for unusual machines.
#pragma once

namespace headsweep {

struct Timing {
  double kill_grace = 5;    // HEADSWEEP_KILL_GRACE: from SIGTERM to SIGKILL
  double stop_grace = 120;  // HEADSWEEP_STOP_GRACE: from "stop" until a trainer that does not leave is killed
  double hang_floor = 120;  // HEADSWEEP_HANG_FLOOR: no progress for at least this long is a hang (core.h)
  // A node silent for node_timeout is lost. Its agent gives up at two thirds of that, so that when the
  // coordinator starts its trials elsewhere, they have ended there. HEADSWEEP_NODE_TIMEOUT.
  double node_timeout = 45;
  // An agent that has given up waits this long to hear from the coordinator again: a link that was cut may heal.
  double return_timeout = 90;  // HEADSWEEP_RETURN_TIMEOUT
  double welcome_timeout =
      3600;  // HEADSWEEP_WELCOME_TIMEOUT: an agent waits this long for rank 0 to prepare data
  double probe_timeout = 120;  // HEADSWEEP_PROBE_TIMEOUT: for the child that looks for GPUs
  double lease = 60;           // HEADSWEEP_LEASE: a launcher of a shared sweep that is silent for so long loses its trials; at least 1
  double heartbeat = 1;        // not settable

  double agent_timeout() const { return node_timeout * 2 / 3 - kill_grace; }
  // Throws ConfigError for a variable that is not a positive number.
  static Timing FromEnvironment();
};

}  // namespace headsweep
