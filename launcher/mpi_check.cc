#include "launcher/mpi_check.h"

#include <mpi.h>
#include <unistd.h>

#include <climits>
#include <vector>

#include "cluster/base/errors.h"
#include "launcher/mpi_link.h"

namespace headsweep {
namespace {

constexpr int kBytes = 1 << 20;  // more than any MPI sends without asking the receiver first

// Whether every byte that the rank before this one has sent arrives, and all ranks are counted.
bool Exchange(const MpiWorld& world) {
  const int next = (world.rank() + 1) % world.size(), previous = (world.rank() + world.size() - 1) % world.size();
  const std::vector<char> sent(kBytes, static_cast<char>(world.rank() + 1));
  std::vector<char> received(kBytes, 0);
  const bool passed = MPI_Sendrecv(sent.data(), kBytes, MPI_CHAR, next, 0, received.data(), kBytes, MPI_CHAR, previous, 0,
                                   MPI_COMM_WORLD, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
                      received == std::vector<char>(kBytes, static_cast<char>(previous + 1));
  int one = passed ? 1 : 0, all = 0;
  return MPI_Allreduce(&one, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD) == MPI_SUCCESS && all == world.size();
}

}  // namespace

MpiLook LookByMpi() {
  MpiLook look;
  char host[HOST_NAME_MAX + 1] = {};
  ::gethostname(host, sizeof host - 1);
  look.host = host;
  char library[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(library, &length);
  look.library = library;
  look.library = look.library.substr(0, look.library.find_first_of(",\n"));
  try {
    const MpiEnvironment environment = DetectMpi();
    if (!environment.launched) {
      look.problem = "srun started it as a process of its own, not as part of an MPI program";
      return look;
    }
    MpiWorld world(environment.expected_size);
    look.ranks = world.size();
    look.exchanged = Exchange(world);
    world.Finish(true);
  } catch (const Error& error) {
    look.problem = error.what();
  }
  return look;
}

}  // namespace headsweep
