#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "data/batches.h"
#include "tests/data/data_support.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::RandomSentences;
using testing::TempDir;
using testing::TestSeed;
using testing::WriteTokenFile;

TEST(TokenFile, GivesBackTokensAndSentences) {
  const std::uint64_t seed = TestSeed();
  SCOPED_TRACE(fmt::format("HEADSWEEP_TEST_SEED={}", seed));
  std::mt19937_64 random(seed);
  const TempDir dir;
  for (const int vocabulary : {5, 65536, 65537, 1000000}) {  // both widths, and the edge between them
    const auto sentences = RandomSentences(random, 33, 20, vocabulary);
    const TokenFile file(WriteTokenFile(dir / "a.tokens", sentences, vocabulary));
    EXPECT_EQ(file.vocabulary(), vocabulary);
    ASSERT_EQ(file.sentences(), 33);
    for (int s = 0; s < 33; ++s) {
      const std::int64_t start = file.SentenceStart(s);
      ASSERT_EQ(file.SentenceStart(s + 1) - start, static_cast<std::int64_t>(sentences[s].size()) + 1);
      for (std::size_t i = 0; i < sentences[s].size(); ++i) ASSERT_EQ(file[start + i], sentences[s][i]);
      ASSERT_EQ(file[file.SentenceStart(s + 1) - 1], kEndToken);
    }
    EXPECT_EQ(file.SentenceStart(33), file.size());
  }
}

TEST(TokenFile, HasTheBytesOfTheExampleInFormatMd) {
  const std::string bytes =
      SerializeTokens(std::vector<std::int32_t>{5, 6, 3, 7, 3}, std::vector<std::int64_t>{0, 3, 5}, 8);
  ASSERT_EQ(bytes.size(), 64u + 16u + 24u);
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  EXPECT_EQ(hex,
            "485357544f4b454e"
            "01000000"
            "08000000"
            "02000000"
            "00000000"  // magic, version, vocabulary, 2 bytes a token
            "0500000000000000"
            "0200000000000000"
            "2800000000000000"  // tokens, sentences, payload bytes
            "7930c3f1e1e50758"
            "6aa55926a21c6323"  // checksums: payload, header
            "05000600030007000300"
            "000000000000"                                        // tokens and padding
            "000000000000000003000000000000000500000000000000");  // sentence table
}

TEST(TokenFile, OutlivesAMove) {
  const TempDir dir;
  TokenFile first(WriteTokenFile(dir / "a.tokens", {{4, 5}}, 8));
  TokenFile second(WriteTokenFile(dir / "b.tokens", {{6}}, 8));
  second = std::move(first);
  EXPECT_EQ(second.size(), 3);
  EXPECT_EQ(second[1], 5);
}

TEST(TokenFile, MissingFileIsAnIoErrorWithItsPath) {
  try {
    TokenFile("/nowhere/a.tokens");
    FAIL();
  } catch (const IoError& error) {
    EXPECT_EQ(error.path(), "/nowhere/a.tokens");
  }
}

// Damage to a field, with the header's own checksum left as it was and, second, made right again: the field
// itself must be refused, by name.
struct Damage {
  const char* field;
  const char* expected;  // in the error text
  std::function<void(TokenHeader&)> apply;
  bool found_without_header_checksum = true;
};

class DamagedTokenFile : public ::testing::Test {
 protected:
  std::string Refusal(const std::string& bytes) const {
    FileSystem::Real().WriteFile(dir_ / "damaged.tokens", bytes);
    try {
      TokenFile file(dir_ / "damaged.tokens");
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "accepted";
  }
  std::string Good() const {
    return FileSystem::Real().ReadFile(WriteTokenFile(dir_ / "good.tokens", {{4, 5, 6}, {7}, {5, 4}}, 8));
  }
  TempDir dir_;
};

TEST_F(DamagedTokenFile, EveryHeaderFieldIsRefusedByName) {
  const Damage damages[] = {
      {"magic", "wrong magic", [](TokenHeader& h) { h.magic[0] = 'X'; }},
      {"version", "format version 9", [](TokenHeader& h) { h.version = 9; }},
      {"vocabulary", "header checksum", [](TokenHeader& h) { h.vocabulary = 7; }, false},
      {"token_bytes", "token size of 3", [](TokenHeader& h) { h.token_bytes = 3; }},
      {"token_bytes", "token count", [](TokenHeader& h) { h.token_bytes = 4; }},
      {"reserved", "reserved", [](TokenHeader& h) { h.reserved = 1; }},
      {"tokens", "token count", [](TokenHeader& h) { h.tokens += 4; }},
      {"tokens", "impossible token count", [](TokenHeader& h) { h.tokens = ~0ull; }},
      {"sentences", "sentence count", [](TokenHeader& h) { ++h.sentences; }},
      {"sentences", "impossible sentence count", [](TokenHeader& h) { h.sentences = ~0ull; }},
      {"payload_bytes", "truncated or damaged", [](TokenHeader& h) { h.payload_bytes -= 8; }},
      {"payload_checksum", "checksum of the tokens", [](TokenHeader& h) { ++h.payload_checksum; }},
      {"header_checksum", "header checksum", [](TokenHeader& h) { ++h.header_checksum; }, false},
  };
  for (const Damage& damage : damages) {
    SCOPED_TRACE(damage.field);
    std::string bytes = Good();
    TokenHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    damage.apply(header);
    std::memcpy(bytes.data(), &header, sizeof header);
    const std::string refusal = Refusal(bytes);
    EXPECT_NE(refusal, "accepted");
    EXPECT_THAT(refusal, HasSubstr("damaged.tokens"));
    EXPECT_THAT(refusal, HasSubstr("delete its folder"));
    if (!damage.found_without_header_checksum) {
      EXPECT_THAT(refusal, HasSubstr(damage.expected));
      continue;
    }
    header.header_checksum = Checksum(&header, offsetof(TokenHeader, header_checksum));
    std::memcpy(bytes.data(), &header, sizeof header);
    EXPECT_THAT(Refusal(bytes), HasSubstr(damage.expected));
  }
}

TEST_F(DamagedTokenFile, AnyFlippedBitIsRefused) {
  const std::string good = Good();
  for (std::size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << (at % 8)));
    EXPECT_NE(Refusal(bytes), "accepted") << "byte " << at;
  }
}

TEST_F(DamagedTokenFile, AnyOtherLengthIsRefused) {
  const std::string good = Good();
  for (std::size_t size = 0; size < good.size(); ++size)
    EXPECT_THAT(Refusal(good.substr(0, size)), HasSubstr("truncated or damaged")) << size;
  EXPECT_THAT(Refusal(good + '\0'), HasSubstr("truncated or damaged"));
}

TEST(TokenFileDeathTest, AWriterRefusesTokensOutsideTheVocabulary) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const std::vector<std::int32_t> tokens = {8, 3};
  const std::vector<std::int64_t> starts = {0, 2};
  EXPECT_DEATH(SerializeTokens(tokens, starts, 8), "token 8 outside a vocabulary of 8");
}

}  // namespace
}  // namespace headsweep
