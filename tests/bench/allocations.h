// Counts heap allocations of this whole process: headsweep-bench replaces malloc and its kin (allocations.cc)
// by versions that count and pass on. Allocations made by oneDNN's own code, inside a product, are counted
// apart.
#pragma once

#include <cstdint>

namespace headsweep::bench {

struct AllocationCount {
  std::int64_t ours = 0;  // by everything but oneDNN
  std::int64_t onednn = 0;
  std::int64_t page_faults = 0;  // of the process, without disk access: each costs a microsecond or more

  AllocationCount operator-(const AllocationCount& other) const {
    return {ours - other.ours, onednn - other.onednn, page_faults - other.page_faults};
  }
};

// Finds where oneDNN lies in memory. Call once, before counting.
void StartCountingAllocations();
AllocationCount CountAllocations();

}  // namespace headsweep::bench
