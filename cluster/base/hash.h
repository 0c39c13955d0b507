// Content hashes (identity) and checksums (integrity): xxHash3. Not cryptographic. Stable across machines and releases.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace headsweep {

// 16 lower-case hex digits; identity of configurations and corpora.
std::string HashHex(std::string_view bytes);

// 64-bit checksum of a block of memory; integrity of journal lines, token files, checkpoints.
std::uint64_t Checksum(const void* data, std::size_t bytes);
inline std::uint64_t Checksum(std::string_view bytes) { return Checksum(bytes.data(), bytes.size()); }
std::string ChecksumHex(std::string_view bytes);

}  // namespace headsweep
