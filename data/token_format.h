// The token file as it lies on disk: this header is the truth, FORMAT.md explains it with a worked example.
// All numbers little-endian. After the header: the tokens (tokens * token_bytes, padded with zero bytes to a
// multiple of 8), then the sentence table: sentences + 1 offsets (int64, in tokens), ascending, the first 0,
// the last = tokens.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace headsweep {

static_assert(std::endian::native == std::endian::little, "token files are read by mapping them");

// Ids that every tokenizer of headsweep has. Stored in every prepared corpus: never change them.
inline constexpr std::int32_t kPadToken = 0;
inline constexpr std::int32_t kUnknownToken = 1;
inline constexpr std::int32_t kBeginToken = 2;  // <s>
inline constexpr std::int32_t kEndToken = 3;    // </s>

inline constexpr char kTokenMagic[8] = {'H', 'S', 'W', 'T', 'O', 'K', 'E', 'N'};
inline constexpr std::uint32_t kTokenVersion = 1;

struct TokenHeader {
  char magic[8];
  std::uint32_t version;
  std::uint32_t vocabulary;   // every token is < vocabulary
  std::uint32_t token_bytes;  // 2 (vocabulary <= 65,536) or 4
  std::uint32_t reserved;     // 0
  std::uint64_t tokens;       // sentence ends included
  std::uint64_t sentences;
  std::uint64_t payload_bytes;     // file size - 64
  std::uint64_t payload_checksum;  // XXH3-64 of everything after the header
  std::uint64_t header_checksum;   // XXH3-64 of the 56 bytes before it
};
static_assert(sizeof(TokenHeader) == 64 && offsetof(TokenHeader, tokens) == 24 &&
              offsetof(TokenHeader, header_checksum) == 56);

// The bytes of a token file. tokens: all sentences one after the other, each ending with </s>; starts:
// sentences + 1 offsets as above. Broken input (a token outside the vocabulary, a table that does not fit) is
// a broken invariant.
std::string SerializeTokens(std::span<const std::int32_t> tokens, std::span<const std::int64_t> starts,
                            int vocabulary);

}  // namespace headsweep
