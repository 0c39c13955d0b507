// What the kernel knows of a process that makes no progress: written to its log before it is killed.
#pragma once

#include <sys/types.h>

#include <string>

namespace headsweep {

// One line a thread: number, name, state, what it waits for in the kernel, CPU time. Best effort; never
// throws.
std::string DescribeThreads(pid_t pid);

}  // namespace headsweep
