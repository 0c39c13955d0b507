// Runs a helper program to its end and returns what it printed. For short questions ("mpirun --version",
// "bible -f …"), not for trials: the launcher supervises those itself.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace headsweep {

struct ProgramResult {
  int exit_code = 0;   // 128 + signal if a signal ended it
  std::string output;  // standard output, and standard error when it was asked for
};

// Full path of an executable file found on PATH (or of name itself if it holds a '/'); "" if there is none.
std::string FindProgram(const std::string& name);

// arguments[0] is looked for on PATH. Standard input is /dev/null. merge_errors: standard error is captured
// with the output, otherwise thrown away. environment: variables added to this process's, or replacing them;
// without: this process's variables whose names begin so are left out.
// Throws IoError if it cannot be started; CommError naming it if it has not ended after timeout_seconds (it
// is killed first).
ProgramResult RunProgram(const std::vector<std::string>& arguments, double timeout_seconds,
                         bool merge_errors = false,
                         const std::vector<std::pair<std::string, std::string>>& environment = {},
                         const std::vector<std::string>& without = {});

}  // namespace headsweep
