// Corpora: from a text to prepared token files. Prepared data is content-addressed: <data
// root>/<fingerprint>/ holds corpus.json (what it is, counts), tokenizer.model (SentencePiece) and
// train.tokens, valid.tokens, test.tokens. It is written once (under a lock, sealed by rename) and shared by
// every trial of a workspace. See data/FORMAT.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"

namespace headsweep {

// What is asked for.
struct CorpusRequest {
  std::string corpus;  // "kjv" and other known names, or a path: UTF-8 text, one sentence a line
  int vocabulary = 4000;
};

// Counts of one split in the original text, for perplexity per word (FORMATS: words + one sentence end each).
struct SplitCounts {
  std::int64_t sentences = 0;
  std::int64_t words = 0;   // white-space separated words of the original lines
  std::int64_t pieces = 0;  // tokens, the sentence ends included
};

struct PreparedCorpus {
  std::string directory;
  std::string name;
  std::string fingerprint;  // 16 hex digits
  int vocabulary = 0;       // pieces really in the tokenizer (may be fewer than asked for on tiny texts)
  SplitCounts train, valid, test;
  std::string TokensPath(const std::string& split) const { return directory + "/" + split + ".tokens"; }
};

// The fingerprint without preparing anything: reads the source text (a few ms per MB). Hash of the text's
// bytes, the request and the preparation's version. Throws ConfigError naming the corpus, what was looked
// for, and what to install.
std::string CorpusFingerprint(const CorpusRequest& request);

// Idempotent and safe against a concurrent caller and a crash at any point. progress(text) is called for each
// phase.
PreparedCorpus PrepareCorpus(const CorpusRequest& request, const std::string& data_root, FileSystem& files,
                             const std::function<void(const std::string&)>& progress);

// Opens <directory>; checks format versions and checksums of corpus.json. Throws ConfigError / IoError.
PreparedCorpus OpenPreparedCorpus(const std::string& directory, const FileSystem& files);

// Known corpus names with a line of description and where each is looked for.
struct KnownCorpus {
  std::string name, description, package;
};
std::vector<KnownCorpus> KnownCorpora();

}  // namespace headsweep
