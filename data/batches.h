// Batches of a language model from a token file, with a cursor that can be saved. Order of examples: a new
// permutation each epoch, a function of (seed, epoch) alone. The same cursor gives the same examples on any
// machine and any batch cutting. stream packing: example i = tokens [i*T, i*T + T + 1) of the split's stream
// (inputs T, targets shifted by one), every sentence followed by </s>; the stream starts with </s>. The last
// tokens that do not fill a row are left out in training and make a short row in evaluation. sentence
// packing: one sentence a row, inputs start with <s>, cut at T, padded. Short rows: inputs of padding are
// <pad> (0), targets -1, and lengths tells the real length. Not thread-safe. Source: the perplexity
// conventions of the One Billion Word benchmark (Chelba et al. 2013).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace headsweep {

struct Batch {
  int B = 0;
  int T = 0;
  std::vector<std::int32_t> tokens;   // (B, T)
  std::vector<std::int32_t> targets;  // (B, T), -1 = no target
  std::vector<std::int32_t> lengths;  // (B), 1..T each, or empty when every row is full
  std::int64_t target_count = 0;      // targets >= 0
  std::int64_t first_example = 0;     // index of row 0 within its effective batch (for dropout); Next sets 0,
                                   // whoever cuts an effective batch into pieces sets the rest
};

struct BatchCursor {
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // examples of this epoch already given out
  bool operator==(const BatchCursor&) const = default;
};

// A read-only, memory-mapped token file (token_format.h). The constructor reads all of it once to check it.
// Throws IoError if it cannot be opened, ConfigError (path, what is wrong, what to do) on a wrong magic,
// version, size or checksum.
class TokenFile {
 public:
  explicit TokenFile(const std::string& path);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;
  TokenFile& operator=(TokenFile&&) noexcept;

  std::int64_t size() const;  // tokens
  std::int32_t operator[](std::int64_t i) const;
  std::int64_t sentences() const;
  std::int64_t SentenceStart(std::int64_t i) const;  // i in [0, sentences()]; the last is size()
  int vocabulary() const;
  std::uint64_t checksum() const;  // of tokens and sentence table

 private:
  struct Mapping;
  std::unique_ptr<Mapping> mapping_;
};

enum class Packing { kStream, kSentence };

class BatchSource {
 public:
  // file must outlive the source. Throws ConfigError if T < 1 or the file is empty. shuffle: training order;
  // without it examples come in file order, one epoch, for evaluation (the last, short example included so
  // that every token is predicted exactly once).
  BatchSource(const TokenFile& file, Packing packing, int T, std::uint64_t seed, bool shuffle);

  std::int64_t examples() const { return examples_; }  // in one epoch
  std::int64_t targets() const;                        // in one epoch
  // Fills batch with the next `count` examples (shuffle: never ends, an epoch's end is followed by the next
  // one's start). Without shuffle: fewer at the end; returns false (batch untouched) when none is left.
  // Reuses the vectors' memory.
  bool Next(int count, Batch& batch);
  // Where the next example comes from. Canonical: an epoch's end is the next one's start, so cursors compare
  // equal however the examples before were cut into batches.
  BatchCursor cursor() const { return cursor_; }
  void Seek(const BatchCursor& cursor);  // a position past the epoch's end runs on into the next epochs
  void Skip(
      std::int64_t count);  // as if Next had given out count more: how a rank finds its share of a batch
  std::int64_t TargetsOfNext(int count) const;  // targets of the next count examples; shuffle only

 private:
  std::int64_t ExampleAt(std::int64_t epoch, std::int64_t position) const;  // the permutation
  void FillRow(std::int64_t example, int row, Batch& batch) const;
  const TokenFile& file_;
  Packing packing_;
  int T_;
  std::uint64_t seed_;
  bool shuffle_;
  std::int64_t examples_;
  BatchCursor cursor_;
};

}  // namespace headsweep
