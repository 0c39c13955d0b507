// How much memory a process may still take, and the error that says how much was missing.
#pragma once

#include <cstdint>
#include <new>
#include <string>

namespace headsweep {

// A std::bad_alloc that can speak: what was needed, what there is, what to change.
class OutOfMemory : public std::bad_alloc {
 public:
  explicit OutOfMemory(std::string message) : message_(std::move(message)) {}
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  std::string message_;
};

// Bytes this process can still take without swapping or being killed: the least of the machine's
// MemAvailable, the room left in its control group (v2 and v1) and RLIMIT_AS. Huge when nothing limits it.
// HEADSWEEP_MEMORY_LIMIT=<bytes> lowers it.
std::int64_t AvailableMemoryBytes();

// Most memory this process has held so far, resident.
std::int64_t PeakMemoryBytes();

// "1.5 GiB"
std::string FormatBytes(std::int64_t bytes);

}  // namespace headsweep
