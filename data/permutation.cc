#include "data/permutation.h"

#include <algorithm>
#include <bit>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): every input bit reaches every output bit.
std::uint64_t Mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

std::uint64_t Mask(int bits) { return (std::uint64_t{1} << bits) - 1; }

// Smaller domains mix too little in 8 rounds: a few more walking steps cost nothing there.
constexpr int kLeastBits = 8;

}  // namespace

Permutation::Permutation(std::int64_t size, std::uint64_t seed, std::int64_t epoch)
    : size_(static_cast<std::uint64_t>(size)) {
  HEADSWEEP_CHECK(size >= 1, "a permutation of {} elements", size);
  const int bits = std::max(kLeastBits, static_cast<int>(std::bit_width(size_ - 1)));
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
  std::uint64_t state = Mix(Mix(seed) ^ static_cast<std::uint64_t>(epoch));
  for (std::uint64_t& key : keys_) key = state = Mix(state);
}

std::uint64_t Permutation::Encrypt(std::uint64_t value) const {
  std::uint64_t high = value >> low_bits_;
  std::uint64_t low = value & Mask(low_bits_);
  for (int round = 0; round < kRounds; round += 2) {
    high ^= Mix(low ^ keys_[round]) & Mask(high_bits_);
    low ^= Mix(high ^ keys_[round + 1]) & Mask(low_bits_);
  }
  return high << low_bits_ | low;
}

std::int64_t Permutation::operator()(std::int64_t position) const {
  std::uint64_t value = static_cast<std::uint64_t>(position);
  do {
    value = Encrypt(value);
  } while (value >= size_);
  return static_cast<std::int64_t>(value);
}

}  // namespace headsweep
