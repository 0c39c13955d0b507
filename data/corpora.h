// Where the text of a corpus comes from: the known names, and any file. To add a corpus: an entry in the
// table of corpora.cc.
#pragma once

#include <string>

#include "cluster/base/file_system.h"

namespace headsweep {

struct CorpusText {
  std::string name;    // "kjv", or the file's name
  std::string source;  // where these bytes came from, for provenance: a path or a program with its arguments
  std::string text;    // one sentence a line, as SplitSentences takes it
};

// corpus: a known name (KnownCorpora), else the path of a text file, taken from the current directory. A
// known name wins over a file of that name: write ./kjv for the file. Throws ConfigError saying what was
// looked for and what to install.
CorpusText LoadCorpusText(const std::string& corpus, const FileSystem& files);

}  // namespace headsweep
