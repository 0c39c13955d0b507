#include "cluster/base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace headsweep {

std::string HashHex(std::string_view bytes) {
  // The high half of the 128-bit hash: 64 bits keep names short; 10^6 stages collide with probability 3e-8.
  return fmt::format("{:016x}", XXH3_128bits(bytes.data(), bytes.size()).high64);
}

std::uint64_t Checksum(const void* data, std::size_t bytes) { return XXH3_64bits(data, bytes); }

std::string ChecksumHex(std::string_view bytes) { return fmt::format("{:016x}", Checksum(bytes)); }

}  // namespace headsweep
