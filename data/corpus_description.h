// corpus.json: what a prepared corpus is, in text. Written last into the folder; FORMAT.md lists its keys.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "data/corpus.h"

namespace headsweep {

inline constexpr int kCorpusFormat = 1;

// Changes whenever the same text would be prepared into other bytes (splits, tokenizer settings). Part of the
// fingerprint.
inline constexpr int kPreparationVersion = 1;

inline constexpr const char* kCorpusFileName = "corpus.json";
inline constexpr const char* kTokenizerFileName = "tokenizer.model";

struct SplitDescription {
  SplitCounts counts;
  std::int64_t unknown = 0;   // pieces that are <unk>
  std::int64_t in_train = 0;  // sentences that occur word for word in the train split (0 for train itself)
  std::int64_t bytes = 0;     // of the token file
  std::string checksum;       // of its payload (TokenFile::checksum), 16 hex digits
};

struct CorpusDescription {
  std::string name;
  std::string source;
  std::string fingerprint;
  int vocabulary = 0;  // pieces in the model
  int vocabulary_asked = 0;
  std::int64_t empty_lines = 0;
  std::string tokenizer_checksum;
  std::array<SplitDescription, 3> splits;  // train, valid, test
};

std::string FormatDescription(const CorpusDescription& description);

// path: for error texts. Throws ConfigError on broken JSON, another format version, a missing key or a wrong
// checksum.
CorpusDescription ParseDescription(const std::string& text, const std::string& path);

}  // namespace headsweep
