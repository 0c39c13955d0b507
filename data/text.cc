#include "data/text.h"

#include <utility>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

constexpr std::size_t kMostComplaints = 10;
constexpr char32_t kInvalid = 0xffffffff;

// The code point at text[at], which moves behind it; kInvalid for anything that RFC 3629 forbids (overlong
// forms, surrogates, beyond U+10FFFF, a cut sequence), and for NUL, which no text holds. `at` then stays.
char32_t Decode(std::string_view text, std::size_t& at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(at);
  if (lead < 0x80) {
    if (lead == 0) return kInvalid;
    ++at;
    return lead;
  }
  const int length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() - at < static_cast<std::size_t>(length)) return kInvalid;
  char32_t code = lead & (0x7fu >> length);
  for (int i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return kInvalid;
    code = code << 6 | (byte(at + i) & 0x3fu);
  }
  const char32_t least = length == 2 ? 0x80 : length == 3 ? 0x800 : 0x10000;
  if (code < least || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return kInvalid;
  at += length;
  return code;
}

bool IsWhiteSpace(char32_t c) {
  return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f ||
         c == 0x3000;
}

// Words of a line, or -1 - (offset of the first bad byte).
std::int64_t WordsOrBadByte(std::string_view line) {
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < line.size();) {
    const char32_t code = Decode(line, at);
    if (code == kInvalid) return -1 - static_cast<std::int64_t>(at);
    const bool space = IsWhiteSpace(code);
    if (!space && !inside) ++words;
    inside = !space;
  }
  return words;
}

}  // namespace

Sentences SplitSentences(std::string_view text, const std::string& file) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Sentences sentences;
  std::vector<Diagnostic> complaints;
  int line_number = 0;
  while (!text.empty() && complaints.size() < kMostComplaints) {
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    ++line_number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::int64_t words = WordsOrBadByte(line);
    if (words < 0) {
      const auto at = static_cast<std::size_t>(-1 - words);
      complaints.push_back({file, line_number, static_cast<int>(at) + 1,
                            fmt::format("byte 0x{:02x} is not UTF-8 text; convert the file to UTF-8 (iconv)",
                                        static_cast<unsigned char>(line[at]))});
    } else if (words == 0) {
      ++sentences.empty_lines;
    } else {
      sentences.lines.push_back(line);
    }
  }
  if (!complaints.empty()) throw ConfigError(std::move(complaints));
  return sentences;
}

std::int64_t CountWords(std::string_view sentence) {
  const std::int64_t words = WordsOrBadByte(sentence);
  HEADSWEEP_CHECK(words >= 0, "words of a line that is not UTF-8");
  return words;
}

}  // namespace headsweep
