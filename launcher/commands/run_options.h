// From the command line's words to a session's options; shared by run and resume.
#pragma once

#include <string>

#include "launcher/commands/command.h"
#include "launcher/session.h"

namespace headsweep {

// Throws ConfigError for numbers that make no sense.
SessionOptions SessionOptionsFrom(const Arguments& arguments);

std::string AbsolutePath(const std::string& path);

}  // namespace headsweep
