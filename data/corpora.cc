#include "data/corpora.h"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>

#include "cluster/base/errors.h"
#include "cluster/base/run_program.h"
#include "data/corpus.h"
#include "data/text.h"

namespace headsweep {
namespace {

constexpr double kBibleSeconds =
    60;  // it takes 0.2 s; a deadline against a program that waits for a terminal

// $HEADSWEEP_CORPORA/<name>, or "" where the variable is not set.
std::string InCorporaFolder(const std::string& name) {
  const char* folder = std::getenv("HEADSWEEP_CORPORA");
  return folder == nullptr || *folder == '\0' ? "" : JoinPath(folder, name);
}

std::string LookedFor(const std::string& path) {
  return path.empty() ? "HEADSWEEP_CORPORA is not set" : path + " does not exist";
}

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

// "Ge1:1 In the beginning" -> "In the beginning", line by line.
std::string StripReferences(std::string_view verses) {
  std::string text;
  text.reserve(verses.size());
  while (!verses.empty()) {
    const std::size_t end = verses.find('\n');
    const std::string_view line = verses.substr(0, end);
    verses.remove_prefix(end == std::string_view::npos ? verses.size() : end + 1);
    const std::size_t blank = line.find(' ');
    const std::string_view reference = line.substr(0, blank);
    const std::size_t colon = reference.find(':');
    const std::string_view verse = reference.substr(std::min(colon, reference.size() - 1) + 1);
    if (blank == std::string_view::npos || colon == std::string_view::npos || verse.empty() ||
        !std::all_of(verse.begin(), verse.end(), [](char c) { return c >= '0' && c <= '9'; }))
      throw ConfigError(
          fmt::format("corpus kjv: the bible program printed \"{}\", expected a verse like "
                      "\"Ge1:1 In the beginning …\"; reinstall bible-kjv and bible-kjv-text",
                      line.substr(0, 60)));
    text.append(line.substr(blank + 1)).push_back('\n');
  }
  return text;
}

CorpusText CheckKjv(CorpusText corpus) {
  constexpr std::int64_t kVerses = 31102;
  constexpr std::int64_t kWords = 789634;
  const Sentences sentences = SplitSentences(corpus.text, corpus.source);
  std::int64_t words = 0;
  for (const std::string_view line : sentences.lines) words += CountWords(line);
  const auto verses = static_cast<std::int64_t>(sentences.lines.size());
  if (verses != kVerses || words != kWords)
    throw ConfigError(
        fmt::format("corpus kjv: {} has {} verses with {} words, the King James Bible has {} with {}; "
                    "use Debian's bible-kjv-text, or give your text as a path instead of kjv",
                    corpus.source, verses, words, kVerses, kWords));
  return corpus;
}

CorpusText LoadKjv(const FileSystem& files) {
  const std::string path = InCorporaFolder("lm-kjv/kjv.txt");
  if (!path.empty() && files.Exists(path)) return CheckKjv({"kjv", path, files.ReadFile(path)});
  const std::string program = FindProgram("bible");
  if (program.empty())
    throw ConfigError(fmt::format(
        "corpus kjv: looked for the King James Bible in the program `bible` on PATH (not there) and "
        "in $HEADSWEEP_CORPORA/lm-kjv/kjv.txt ({}); install it with\n"
        "  apt-get install bible-kjv bible-kjv-text",
        LookedFor(path)));
  const ProgramResult result = RunProgram({program, "-f", "Gen1:1-Rev22:21"}, kBibleSeconds);
  if (result.exit_code != 0 || result.output.empty())
    throw ConfigError(fmt::format(
        "corpus kjv: {} -f Gen1:1-Rev22:21 ended with code {} and {} bytes of text; its text is in a "
        "package of its own:\n  apt-get install bible-kjv-text",
        program, result.exit_code, result.output.size()));
  return CheckKjv({"kjv", program + " -f Gen1:1-Rev22:21", StripReferences(result.output)});
}

CorpusText LoadAusten(const FileSystem& files) {
  const std::string path = InCorporaFolder("lm-austen/austen.sents.txt");
  if (path.empty() || !files.Exists(path))
    throw ConfigError(
        fmt::format("corpus austen: looked for $HEADSWEEP_CORPORA/lm-austen/austen.sents.txt ({}); put the "
                    "novels there, one "
                    "sentence a line (their text: Debian's r-cran-janeaustenr or Project Gutenberg), give "
                    "the path of any "
                    "such file as the corpus, or use corpus kjv",
                    LookedFor(path)));
  return {"austen", path, files.ReadFile(path)};
}

struct Entry {
  KnownCorpus known;
  CorpusText (*load)(const FileSystem&);
};

const std::vector<Entry>& Registry() {
  static const std::vector<Entry> entries = {
      {{"kjv",
        "King James Bible, 31,102 verses, 789,634 words, public domain; from "
        "$HEADSWEEP_CORPORA/lm-kjv/kjv.txt or the program "
        "`bible`",
        "bible-kjv bible-kjv-text"},
       LoadKjv},
      {{"austen",
        "six novels of Jane Austen, 31,399 sentences, 714,786 words, public domain; from "
        "$HEADSWEEP_CORPORA/lm-austen/austen.sents.txt",
        ""},
       LoadAusten},
  };
  return entries;
}

CorpusText LoadFile(const std::string& path, const FileSystem& files) {
  const std::string absolute = Absolute(path);
  if (!files.Exists(absolute)) {
    std::string names;
    for (const Entry& entry : Registry()) names += (names.empty() ? "" : ", ") + entry.known.name;
    throw ConfigError(fmt::format(
        "corpus {}: no such file ({}) and no known corpus; known: {}; or give the path of a UTF-8 "
        "text, one sentence a line",
        path, absolute, names));
  }
  try {
    return {BaseName(absolute), absolute, files.ReadFile(absolute)};
  } catch (const IoError& error) {
    throw ConfigError(fmt::format("corpus {}: cannot be read as a text file: {}", path, error.what()));
  }
}

}  // namespace

CorpusText LoadCorpusText(const std::string& corpus, const FileSystem& files) {
  if (corpus.empty())
    throw ConfigError("corpus: empty; give a known name such as kjv or the path of a text file");
  for (const Entry& entry : Registry())
    if (entry.known.name == corpus) return entry.load(files);
  return LoadFile(corpus, files);
}

std::vector<KnownCorpus> KnownCorpora() {
  std::vector<KnownCorpus> corpora;
  for (const Entry& entry : Registry()) corpora.push_back(entry.known);
  return corpora;
}

}  // namespace headsweep
