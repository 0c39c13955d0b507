// Sub-words: SentencePiece byte-pair encoding behind a small class, so that its headers stay in one file.
// The text is taken as it is ("identity" normalisation, blanks kept), so that decoding gives it back;
// characters never seen in training become <unk>. Not thread-safe to train, safe to encode from several
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace headsweep {

// Trains on the sentences and returns the serialised model: the same bytes for the same input on any machine
// with the same SentencePiece (one thread, sentences in memory, so that neither paths nor threads get into
// it). On tiny texts the model may have fewer pieces than asked for. At most 1,000,000 sentences are used,
// evenly spread. corpus: for error texts. Throws ConfigError if vocabulary is out of range or too small for
// the text's characters.
std::string TrainTokenizer(const std::vector<std::string_view>& sentences, int vocabulary,
                           const std::string& corpus);

class Tokenizer {
 public:
  explicit Tokenizer(const std::string& model);  // serialised. Throws ConfigError if it is none
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  int vocabulary() const;
  // Appends the ids of the sentence, without <s> and </s>.
  void Encode(std::string_view sentence, std::vector<std::int32_t>& ids) const;
  std::string Decode(const std::vector<std::int32_t>& ids) const;
  std::string Piece(std::int32_t id) const;  // as SentencePiece writes it: U+2581 stands for a blank

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headsweep
