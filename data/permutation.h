// A permutation of [0, size) that is computed, not stored: a Feistel network over the next power of two,
// walked until it lands inside (cycle walking). A function of (size, key) by integer arithmetic alone, so the
// same on every machine; any position costs the same, so a cursor can be put anywhere at once. A stored
// shuffle would need 4 bytes an example in every process and a full pass to resume. Good for shuffling, not
// for secrets.
#pragma once

#include <cstdint>

namespace headsweep {

class Permutation {
 public:
  // size >= 1. Different (seed, epoch) give unrelated orders.
  Permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch);
  std::int64_t operator()(std::int64_t position) const;  // position in [0, size)

 private:
  static constexpr int kRounds = 8;  // even: the two halves are changed in turn
  std::uint64_t Encrypt(std::uint64_t value) const;

  std::uint64_t size_;
  int low_bits_;  // width of the two halves, in bits; high_bits_ is equal or one more
  int high_bits_;
  std::uint64_t keys_[kRounds];
};

}  // namespace headsweep
