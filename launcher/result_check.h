// Which stages of a workspace have a valid result. What is in the files is read by a child process (`headsweep
// read-results`), so that HDF5 never runs in the process that must live.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "launcher/workspace.h"

namespace headsweep {

struct ResultCheck {
  std::map<std::string, std::string> done;  // stage -> JSON StageSummary ("" if it could not be read in time)
  std::map<std::string, std::string> damaged;  // stage -> why its result.h5 is no result
};

// Looks at trials/<id>/result.h5 of every stage: absent, valid or damaged. recorded: stages whose end the journal knows, with
// their summaries (JSON): of these only the file's checksum is checked, here, since a child takes HDF5 milliseconds a file.
ResultCheck CheckResults(const Workspace& workspace, const FileSystem& files, const std::vector<std::string>& stages,
                         const std::map<std::string, std::string>& recorded = {});

// Moves a damaged result.h5 out of the way (to result.h5.damaged-<n>), so that the stage runs again. Returns
// the new path.
std::string SetAsideDamaged(const Workspace& workspace, FileSystem& files, const std::string& stage);

// What `headsweep read-results` writes to descriptor kControlDescriptor: one line a stage,
// {"stage", "summary": {…}} or {"stage", "damaged": "why"}.
int ReadResultsInChild(const Workspace& workspace, const std::vector<std::string>& stages);

}  // namespace headsweep
