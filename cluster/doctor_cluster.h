// `headsweep doctor --cluster`: what a Slurm cluster offers and whether sweeps can run on it, asked from the login node. With
// nodes > 0 a short job step also looks from so many nodes at the workspace: whether each sees what the others write (write,
// rename, read), its clock, its free space, its network interfaces. Never throws for what it finds.
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
  std::vector<std::string> srun;  // further words for srun: {"--partition=debug"}
  double seconds = 120;   // for the job step, waiting for nodes included
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

// Pure: the findings of the looks. expected: nodes asked for; now_before, now_after: the login node's clock around them;
// left: hosts whose file the login node can read.
std::vector<Finding> JudgeNodeLooks(const std::vector<NodeLook>& looks, int expected, double now_before, double now_after,
                                    const std::vector<std::string>& left);

}  // namespace headsweep
