#include "data/corpus.h"

#include <unistd.h>

#include <unordered_set>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "data/batches.h"
#include "data/corpora.h"
#include "data/corpus_description.h"
#include "data/file_lock.h"
#include "data/splits.h"
#include "data/text.h"
#include "data/token_format.h"
#include "data/tokenizer.h"

namespace headsweep {
namespace {

// How long to wait for another process that prepares the same corpus. Chosen: far above what a text of a few
// GB takes.
constexpr double kLockSeconds = 3600;

// A text read and cut into sentences. Not movable: the sentences are views into its own text.
struct Source {
  Source(const CorpusRequest& request, const FileSystem& files)
      : text(LoadCorpusText(request.corpus, files)), sentences(SplitSentences(text.text, text.source)) {
    const auto count = static_cast<std::int64_t>(sentences.lines.size());
    if (count < kLeastSentences)
      throw ConfigError(
          fmt::format("corpus {}: {} has {} sentences (lines with a word), at least {} are needed for the "
                      "three splits",
                      request.corpus, text.source, count, kLeastSentences));
    // Of the sentences, not of the file's bytes: line ends, empty lines and the place of the text do not
    // matter.
    std::string identity = fmt::format("headsweep corpus, preparation {}, vocabulary {}\n",
                                       kPreparationVersion, request.vocabulary);
    identity.reserve(identity.size() + text.text.size() + 1);
    for (const std::string_view line : sentences.lines) identity.append(line).push_back('\n');
    fingerprint = HashHex(identity);
  }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  CorpusText text;
  Sentences sentences;
  std::string fingerprint;
};

// Encodes one split; fills in its description and returns the bytes of its token file.
std::string EncodeSplit(const std::vector<std::string_view>& lines, const Tokenizer& tokenizer,
                        SplitDescription& split) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> starts = {0};
  starts.reserve(lines.size() + 1);
  for (const std::string_view line : lines) {
    tokenizer.Encode(line, tokens);
    tokens.push_back(kEndToken);
    starts.push_back(static_cast<std::int64_t>(tokens.size()));
    split.counts.words += CountWords(line);
  }
  split.counts.sentences = static_cast<std::int64_t>(lines.size());
  split.counts.pieces = static_cast<std::int64_t>(tokens.size());
  for (const std::int32_t token : tokens) split.unknown += token == kUnknownToken;
  std::string bytes = SerializeTokens(tokens, starts, tokenizer.vocabulary());
  split.bytes = static_cast<std::int64_t>(bytes.size());
  TokenHeader header;
  bytes.copy(reinterpret_cast<char*>(&header), sizeof header);
  split.checksum = fmt::format("{:016x}", header.payload_checksum);
  return bytes;
}

// Writes all files of a prepared corpus into directory, which exists and is empty. Nothing is durable yet.
void WritePrepared(const Source& source, const CorpusRequest& request, const std::string& directory,
                   FileSystem& files, const std::function<void(const std::string&)>& progress) {
  std::vector<std::string_view> lines[3];
  const auto count = static_cast<std::int64_t>(source.sentences.lines.size());
  for (std::int64_t i = 0; i < count; ++i)
    lines[static_cast<int>(SplitOf(i, count))].push_back(source.sentences.lines[i]);

  progress(fmt::format("training a tokenizer of {} pieces on {} sentences of {}", request.vocabulary,
                       lines[0].size(), source.text.name));
  const std::string model = TrainTokenizer(lines[0], request.vocabulary, request.corpus);
  const Tokenizer tokenizer(model);
  files.WriteFile(JoinPath(directory, kTokenizerFileName), model);

  CorpusDescription description;
  description.name = source.text.name;
  description.source = source.text.source;
  description.fingerprint = source.fingerprint;
  description.vocabulary = tokenizer.vocabulary();
  description.vocabulary_asked = request.vocabulary;
  description.empty_lines = source.sentences.empty_lines;
  description.tokenizer_checksum = ChecksumHex(model);
  progress(fmt::format("encoding {} sentences of {}", count, source.text.name));
  const std::unordered_set<std::string_view> in_train(lines[0].begin(), lines[0].end());
  for (int i = 0; i < 3; ++i) {
    SplitDescription& split = description.splits[i];
    if (i > 0)
      for (const std::string_view line : lines[i]) split.in_train += in_train.contains(line);
    files.WriteFile(JoinPath(directory, fmt::format("{}.tokens", kSplitNames[i])),
                    EncodeSplit(lines[i], tokenizer, split));
  }
  files.WriteFile(JoinPath(directory, kCorpusFileName), FormatDescription(description));
}

void RemoveLeftovers(const std::string& data_root, const std::string& prefix, FileSystem& files) {
  for (const std::string& name : files.List(data_root))
    if (name.starts_with(prefix)) files.RemoveAll(JoinPath(data_root, name));
}

}  // namespace

std::string CorpusFingerprint(const CorpusRequest& request) {
  return Source(request, FileSystem::Real()).fingerprint;
}

PreparedCorpus PrepareCorpus(const CorpusRequest& request, const std::string& data_root, FileSystem& files,
                             const std::function<void(const std::string&)>& progress) {
  const auto tell = [&](const std::string& text) {
    if (progress) progress(text);
  };
  tell(fmt::format("reading {}", request.corpus));
  const Source source(request, files);
  const std::string directory = JoinPath(data_root, source.fingerprint);
  if (!files.Exists(directory)) {
    files.CreateDirectories(data_root);
    const FileLock lock(directory + ".lock", kLockSeconds, [&](const std::string& holder) {
      tell(fmt::format("waiting for {}, which prepares {}", holder, request.corpus));
    });
    if (!files.Exists(directory)) {  // else the process we waited for did it
      // Whatever lies there under a temporary name belongs to a dead process: a live one would hold the lock.
      RemoveLeftovers(data_root, source.fingerprint + ".tmp-", files);
      const std::string temporary = fmt::format("{}.tmp-{}", directory, ::getpid());
      files.CreateDirectories(temporary);
      WritePrepared(source, request, temporary, files, tell);
      SealInPlace(files, temporary, directory);
    }
  }
  PreparedCorpus prepared = OpenPreparedCorpus(directory, files);
  prepared.name = source.text.name;  // the same text may have been prepared under another name
  tell(fmt::format("{} is ready in {}", request.corpus, directory));
  return prepared;
}

PreparedCorpus OpenPreparedCorpus(const std::string& directory, const FileSystem& files) {
  const std::string path = JoinPath(directory, kCorpusFileName);
  const CorpusDescription description = ParseDescription(files.ReadFile(path), path);
  const std::string tokenizer_path = JoinPath(directory, kTokenizerFileName);
  if (ChecksumHex(files.ReadFile(tokenizer_path)) != description.tokenizer_checksum)
    throw ConfigError(
        fmt::format("{}: its checksum differs from the one in {}; delete the folder and run again: prepared "
                    "data is rebuilt from the text",
                    tokenizer_path, path));
  PreparedCorpus prepared;
  prepared.directory = directory;
  prepared.name = description.name;
  prepared.fingerprint = description.fingerprint;
  prepared.vocabulary = description.vocabulary;
  SplitCounts* counts[] = {&prepared.train, &prepared.valid, &prepared.test};
  for (int i = 0; i < 3; ++i) {
    const SplitDescription& split = description.splits[i];
    *counts[i] = split.counts;
    const TokenFile file(prepared.TokensPath(kSplitNames[i]));  // checks itself
    if (fmt::format("{:016x}", file.checksum()) != split.checksum || file.size() != split.counts.pieces ||
        file.sentences() != split.counts.sentences || file.vocabulary() != description.vocabulary)
      throw ConfigError(
          fmt::format("token file {}: it is not the one that {} describes; delete the folder and run again: "
                      "prepared data is rebuilt from the text",
                      prepared.TokensPath(kSplitNames[i]), path));
  }
  return prepared;
}

}  // namespace headsweep
