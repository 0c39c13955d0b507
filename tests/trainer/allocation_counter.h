// Counts calls of operator new in this test program, those of the matrix library excepted (see
// allocation_counter.cc).
#pragma once

#include <cstdint>

namespace headsweep::testing {

std::int64_t AllocationCount();

}  // namespace headsweep::testing
