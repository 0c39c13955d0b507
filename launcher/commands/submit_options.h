// From the site's defaults, a profile and the command line to a request for a job. Later ones win.
//   ~/.config/headsweep/cluster.toml ($XDG_CONFIG_HOME): the keys of kClusterKeys on top, and again in [profile.NAME]
#pragma once

#include <string>

#include "cluster/slurm/job_script.h"
#include "launcher/commands/command.h"

namespace headsweep {

// Path of the site's defaults; the file need not be there.
std::string ClusterConfigPath();

// text of cluster.toml, seen as file `path` in complaints. profile: "" = none. Throws ConfigError with every complaint.
JobRequest ReadClusterConfig(const std::string& text, const std::string& path, const std::string& profile);

// Of the file at ClusterConfigPath(), if it is there.
JobRequest SiteDefaults(const std::string& profile = "");

void AddSubmitOptions(SubCommand& command);

// Defaults, profile and options of the command line, checked. Words after the first `positional` ones go to sbatch.
JobRequest JobRequestFrom(const Arguments& arguments, std::size_t positional);

}  // namespace headsweep
