// Planted bugs, to prove that the tests see such bugs. A product build has none: every hook is empty there.
// The test build compiles the kernels once more for each mutant, with HEADSWEEP_MUTANT_<NAME> defined, and
// its suite must fail (tests/kernels/mutants).
//
//   HS_MUTANT(MISSING_BARRIER, , __syncthreads());              statement of the mutant, statement of the
//   product const int end = HS_MUTANT_VALUE(TILE_EDGE, n + 1, n);       the same for expressions
#pragma once

// The value of HEADSWEEP_MUTANT_X is 1 where it is defined on the command line; each name has its line here.
#if !defined(HEADSWEEP_MUTANT_MISSING_BARRIER)
#define HEADSWEEP_MUTANT_MISSING_BARRIER 0
#endif
#if !defined(HEADSWEEP_MUTANT_TILE_EDGE)
#define HEADSWEEP_MUTANT_TILE_EDGE 0
#endif
#if !defined(HEADSWEEP_MUTANT_DROPPED_MASK)
#define HEADSWEEP_MUTANT_DROPPED_MASK 0
#endif
#if !defined(HEADSWEEP_MUTANT_STALE_MAXIMUM)
#define HEADSWEEP_MUTANT_STALE_MAXIMUM 0
#endif
#if !defined(HEADSWEEP_MUTANT_MISSING_COPY_WAIT)
#define HEADSWEEP_MUTANT_MISSING_COPY_WAIT 0
#endif
#if !defined(HEADSWEEP_MUTANT_DROPPED_LENGTH_MASK)
#define HEADSWEEP_MUTANT_DROPPED_LENGTH_MASK 0
#endif

#define HS_MUTANT(name, mutant, product) \
  do {                                   \
    if (HEADSWEEP_MUTANT_##name) {       \
      mutant;                            \
    } else {                             \
      product;                           \
    }                                    \
  } while (false)
#define HS_MUTANT_VALUE(name, mutant, product) (HEADSWEEP_MUTANT_##name ? (mutant) : (product))
