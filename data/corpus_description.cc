#include "data/corpus_description.h"

#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "data/splits.h"

namespace headsweep {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void Refuse(const std::string& path, const std::string& reason) {
  throw ConfigError(fmt::format(
      "{}: {}; delete its folder and run again: prepared data is rebuilt from the text", path, reason));
}

Json SplitToJson(const SplitDescription& split) {
  return {{"sentences", split.counts.sentences},
          {"words", split.counts.words},
          {"pieces", split.counts.pieces},
          {"unknown_pieces", split.unknown},
          {"sentences_also_in_train", split.in_train},
          {"file_bytes", split.bytes},
          {"payload_checksum", split.checksum}};
}

SplitDescription SplitFromJson(const Json& json) {
  SplitDescription split;
  json.at("sentences").get_to(split.counts.sentences);
  json.at("words").get_to(split.counts.words);
  json.at("pieces").get_to(split.counts.pieces);
  json.at("unknown_pieces").get_to(split.unknown);
  json.at("sentences_also_in_train").get_to(split.in_train);
  json.at("file_bytes").get_to(split.bytes);
  json.at("payload_checksum").get_to(split.checksum);
  return split;
}

}  // namespace

std::string FormatDescription(const CorpusDescription& d) {
  Json json = {{"format", kCorpusFormat},
               {"name", d.name},
               {"source", d.source},
               {"fingerprint", d.fingerprint},
               {"preparation_version", kPreparationVersion},
               {"empty_lines_dropped", d.empty_lines},
               {"tokenizer",
                {{"file", kTokenizerFileName},
                 {"type", "sentencepiece-bpe"},
                 {"vocabulary", d.vocabulary},
                 {"vocabulary_asked", d.vocabulary_asked},
                 {"normalization", "identity"},
                 {"trained_on", "train"},
                 {"checksum", d.tokenizer_checksum}}}};
  for (int i = 0; i < 3; ++i) json["splits"][kSplitNames[i]] = SplitToJson(d.splits[i]);
  json["checksum"] = ChecksumHex(json.dump());
  return json.dump(2) + "\n";
}

CorpusDescription ParseDescription(const std::string& text, const std::string& path) {
  CorpusDescription d;
  try {
    Json json = Json::parse(text);
    const int format = json.at("format").get<int>();
    if (format != kCorpusFormat)
      Refuse(path, fmt::format("format version {}, this program reads version {}", format, kCorpusFormat));
    const std::string checksum = json.at("checksum").get<std::string>();
    json.erase("checksum");
    if (ChecksumHex(json.dump()) != checksum) Refuse(path, "its checksum does not match: damaged or edited");
    json.at("name").get_to(d.name);
    json.at("source").get_to(d.source);
    json.at("fingerprint").get_to(d.fingerprint);
    json.at("empty_lines_dropped").get_to(d.empty_lines);
    const Json& tokenizer = json.at("tokenizer");
    tokenizer.at("vocabulary").get_to(d.vocabulary);
    tokenizer.at("vocabulary_asked").get_to(d.vocabulary_asked);
    tokenizer.at("checksum").get_to(d.tokenizer_checksum);
    for (int i = 0; i < 3; ++i) d.splits[i] = SplitFromJson(json.at("splits").at(kSplitNames[i]));
  } catch (const Json::exception& error) {
    Refuse(path, fmt::format("not the description of a prepared corpus ({})", error.what()));
  }
  return d;
}

}  // namespace headsweep
