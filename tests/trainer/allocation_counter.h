// Counts calls of operator new in this test program (its replacement is in allocation_counter.cc).
#pragma once

#include <cstdint>

namespace headsweep::testing {

std::int64_t AllocationCount();

}  // namespace headsweep::testing
