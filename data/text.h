// Plain text as a corpus: UTF-8, one sentence a line. Lines end at \n only (U+2028, U+0085, VT and FF stay
// inside a sentence); one \r before it and a byte order mark at the start are dropped; lines without a word
// are dropped and counted.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace headsweep {

struct Sentences {
  std::vector<std::string_view> lines;  // views into the text
  std::int64_t empty_lines = 0;         // dropped: nothing but white space
};

// file: for error texts. Throws ConfigError with file:line for bytes that are not UTF-8 and for NUL bytes
// (the first 10).
Sentences SplitSentences(std::string_view text, const std::string& file);

// Words between Unicode white space (the 29 characters of Python's str.split). sentence: valid UTF-8.
std::int64_t CountWords(std::string_view sentence);

}  // namespace headsweep
