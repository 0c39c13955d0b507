// `headsweep doctor --cluster`: what a Slurm cluster offers and whether sweeps can run on it, asked from the login node. With
// nodes > 0 a short job step also looks from so many nodes at the workspace: whether each sees what the others write (write,
// rename, read), its clock, its free space, its network interfaces; and another one whether they find each other by MPI. Never
// throws for what it finds.
#pragma once

#include <string>
#include <vector>

#include "cluster/doctor.h"
#include "cluster/slurm/slurm.h"

namespace headsweep {

struct ClusterDoctorOptions {
  std::string workspace;  // looked at from the nodes; need not exist
  std::string program;    // path of headsweep, which the nodes run
  int nodes = 0;          // to look from; 0 = none
  std::string mpi = "pmix";       // as the jobs of sweeps will have it: srun --mpi=
  std::vector<std::string> srun;  // further words for srun: {"--partition=debug"}
  double seconds = 120;   // for each job step, waiting for nodes included
};
std::vector<Finding> DiagnoseCluster(const Slurm& slurm, const ClusterDoctorOptions& options);

// What one node says about itself and the workspace; printed as one line by `headsweep doctor --look-from-node`.
struct NodeLook {
  std::string host;
  double time = 0;         // unix seconds
  bool reads = false;      // the file that the login node wrote, with the right content
  std::string problem;     // why not, or why its own file could not be written
  double free_gib = 0;
  std::string interfaces;  // "eth0 ib0", those that are up, without lo
};
// directory: made by the login node, holds "from-login" with `token`; the node leaves "from-<host>" there, by rename.
NodeLook LookFromNode(const std::string& directory, const std::string& token);
std::string FormatNodeLook(const NodeLook& look);
std::vector<NodeLook> ParseNodeLooks(const std::string& output);  // lines that are none are left out

// What one rank of an MPI program found (launcher/mpi_check.h); printed as one line by `headsweep doctor --look-by-mpi`.
struct MpiLook {
  std::string host;
  std::string library;     // "Open MPI v4.1.4"
  int ranks = 0;           // that MPI sees; 0 = it did not come so far
  bool exchanged = false;  // messages with the others
  std::string problem;
};
std::string FormatMpiLook(const MpiLook& look);
std::vector<MpiLook> ParseMpiLooks(const std::string& output);
// Pure. expected: ranks; mpi: what srun was given; complaint: what else was printed, or why there is no answer.
Finding JudgeMpiLooks(const std::vector<MpiLook>& looks, int expected, const std::string& mpi, const std::string& complaint);

// Pure: the findings of the looks. expected: nodes asked for; now_before, now_after: the login node's clock around them;
// left: hosts whose file the login node can read.
std::vector<Finding> JudgeNodeLooks(const std::vector<NodeLook>& looks, int expected, double now_before, double now_after,
                                    const std::vector<std::string>& left);

}  // namespace headsweep
