// Counts heap allocations of this whole process, libraries included. A program that links allocations.cc has
// malloc and its kin, and operator new, replaced by versions that count and pass on. Under AddressSanitizer
// and ThreadSanitizer, which replace malloc themselves, only operator new counts.
#pragma once

#include <cstdint>

namespace headsweep::testing {

struct AllocationCount {
  std::int64_t allocations = 0;
  std::int64_t page_faults = 0;  // of the process, without disk access: each costs a microsecond or more

  AllocationCount operator-(const AllocationCount& other) const {
    return {allocations - other.allocations, page_faults - other.page_faults};
  }
};

AllocationCount CountAllocations();  // since the process began; thread-safe

}  // namespace headsweep::testing
