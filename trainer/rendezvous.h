// Rendezvous of a trial that is started without a launcher: by torchrun-style variables or over a shared
// folder. (Under a launcher the control channel carries it: agent_channel.h.)
//
//   RANK, WORLD_SIZE, LOCAL_RANK              this process, how many, this process among those of its machine
//   MASTER_ADDR, MASTER_PORT                  rank 0 listens there, and on no other address
//   HEADSWEEP_RENDEZVOUS_DIR                  instead: an empty folder that every process sees, a new one for
//   each run HEADSWEEP_COLLECTIVE_TIMEOUT              seconds that a peer may be silent in a common
//   operation (default 60)
#pragma once

#include <memory>
#include <string>

#include "cluster/base/file_system.h"
#include "trainer/collective.h"

namespace headsweep {

struct World {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
};

// Reads the variables above. Throws ConfigError for values that make no sense.
World WorldFromEnvironment();
double CollectiveTimeoutFromEnvironment();

// By MASTER_ADDR and MASTER_PORT, or HEADSWEEP_RENDEZVOUS_DIR; ConfigError when neither is set.
std::unique_ptr<Rendezvous> RendezvousFromEnvironment(const World& world, double timeout_seconds);

// Keys are files. A key that is there already belongs to an earlier run: ConfigError.
std::unique_ptr<Rendezvous> MakeFileRendezvous(FileSystem& files, const std::string& directory);

// Rank 0 keeps the keys and serves the others for as long as its object lives. Throws CommError when the
// address cannot be listened on, or nobody answers there within the timeout.
std::unique_ptr<Rendezvous> MakeTcpRendezvous(int rank, const std::string& host, int port,
                                              double timeout_seconds);

}  // namespace headsweep
