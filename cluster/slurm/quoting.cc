#include "cluster/slurm/quoting.h"

#include <algorithm>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_-./,:@%+=").find(c) != std::string_view::npos;
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

bool IsPlainWord(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsPlain);
}

// '…', in which only the quote itself is special.
std::string SingleQuoted(std::string_view text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'') {
      quoted += "'\\''";
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

// $'…': for what should not stand in a script as it is.
std::string AnsiQuoted(std::string_view text) {
  std::string quoted = "$'";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (c == '\'' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (IsControl(c)) {
      quoted += fmt::format("\\{:03o}", static_cast<unsigned char>(c));
    } else {
      quoted += c;
    }
  }
  return quoted + "'";
}

}  // namespace

std::string QuoteForShell(std::string_view text) {
  if (IsPlainWord(text)) return std::string(text);
  return std::any_of(text.begin(), text.end(), IsControl) ? AnsiQuoted(text) : SingleQuoted(text);
}

std::string QuoteForSbatch(std::string_view text, std::string_view what) {
  if (std::any_of(text.begin(), text.end(), IsControl))
    throw ConfigError(fmt::format("{} holds a control character (a newline, perhaps): Slurm cannot take it", what));
  return IsPlainWord(text) ? std::string(text) : SingleQuoted(text);
}

std::string EscapePercent(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c;
    if (c == '%') escaped += '%';
  }
  return escaped;
}

}  // namespace headsweep
