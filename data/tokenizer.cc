#include "data/tokenizer.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <unordered_map>

#include "cluster/base/errors.h"
#include "data/token_format.h"

namespace headsweep {
namespace {

constexpr std::size_t kMostTrainingSentences =
    1'000'000;  // SentencePiece keeps them all in memory, about 3 times over

// Every stride-th sentence, for SentencePiece.
class Feed final : public sentencepiece::SentenceIterator {
 public:
  Feed(const std::vector<std::string_view>& sentences, std::size_t stride)
      : sentences_(sentences), stride_(stride) {
    Load();
  }
  bool done() const override { return at_ >= sentences_.size(); }
  void Next() override {
    at_ += stride_;
    Load();
  }
  const std::string& value() const override { return value_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void Load() {
    if (!done()) value_ = sentences_[at_];
  }
  const std::vector<std::string_view>& sentences_;
  std::size_t stride_;
  std::size_t at_ = 0;
  std::string value_;
};

}  // namespace

std::string TrainTokenizer(const std::vector<std::string_view>& sentences, int vocabulary,
                           const std::string& corpus) {
  if (vocabulary < 8 || vocabulary > 1'000'000)
    throw ConfigError(fmt::format("vocabulary = {}: expected 8 to 1000000 pieces", vocabulary));
  std::size_t longest = 0;
  for (const std::string_view sentence : sentences) longest = std::max(longest, sentence.size());
  const std::unordered_map<std::string, std::string> settings = {
      {"model_type", "bpe"},
      {"vocab_size", std::to_string(vocabulary)},
      {"hard_vocab_limit", "false"},  // a tiny text cannot fill the vocabulary: take what there is
      {"character_coverage", "1.0"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"num_threads", "1"},
      {"max_sentence_length",
       std::to_string(std::max<std::size_t>(4192, longest + 1))},  // longer ones are skipped
      {"pad_id", std::to_string(kPadToken)},
      {"unk_id", std::to_string(kUnknownToken)},
      {"bos_id", std::to_string(kBeginToken)},
      {"eos_id", std::to_string(kEndToken)},
      {"minloglevel", "2"},
  };
  const std::size_t stride = (sentences.size() + kMostTrainingSentences - 1) / kMostTrainingSentences;
  Feed feed(sentences, std::max<std::size_t>(stride, 1));
  std::string model;
  const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &feed, &model);
  if (!status.ok())
    throw ConfigError(fmt::format(
        "corpus {}: no tokenizer of {} pieces can be trained on {} sentences ({}); choose another "
        "vocabulary or a longer text",
        corpus, vocabulary, sentences.size(), status.message()));
  return model;
}

struct Tokenizer::Impl {
  sentencepiece::SentencePieceProcessor processor;
};

Tokenizer::Tokenizer(const std::string& model) : impl_(std::make_unique<Impl>()) {
  const auto status = impl_->processor.LoadFromSerializedProto(model);
  if (!status.ok()) throw ConfigError(fmt::format("not a tokenizer model: {}", status.message()));
}

Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

int Tokenizer::vocabulary() const { return impl_->processor.GetPieceSize(); }

void Tokenizer::Encode(std::string_view sentence, std::vector<std::int32_t>& ids) const {
  std::vector<int> pieces;
  const auto status = impl_->processor.Encode({sentence.data(), sentence.size()}, &pieces);
  if (!status.ok())
    throw Error(fmt::format("SentencePiece could not encode a sentence: {}", status.message()));
  ids.insert(ids.end(), pieces.begin(), pieces.end());
}

std::string Tokenizer::Decode(const std::vector<std::int32_t>& ids) const {
  std::string text;
  const auto status = impl_->processor.Decode(std::vector<int>(ids.begin(), ids.end()), &text);
  if (!status.ok())
    throw Error(fmt::format("SentencePiece could not decode {} ids: {}", ids.size(), status.message()));
  return text;
}

std::string Tokenizer::Piece(std::int32_t id) const { return impl_->processor.IdToPiece(id); }

}  // namespace headsweep
