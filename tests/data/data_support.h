// Made-up texts and token files for the tests of data.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"
#include "data/token_format.h"

namespace headsweep::testing {

// The seed of a random test: HEADSWEEP_TEST_SEED, or a fresh one. Tests print it (SCOPED_TRACE).
inline std::uint64_t TestSeed() {
  const char* text = std::getenv("HEADSWEEP_TEST_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device{}();
}

// A token file of the given sentences (without </s>, which is added). Returns its path.
inline std::string WriteTokenFile(const std::string& path,
                                  const std::vector<std::vector<std::int32_t>>& sentences, int vocabulary) {
  std::vector<std::int32_t> tokens;
  std::vector<std::int64_t> starts = {0};
  for (const auto& sentence : sentences) {
    tokens.insert(tokens.end(), sentence.begin(), sentence.end());
    tokens.push_back(kEndToken);
    starts.push_back(static_cast<std::int64_t>(tokens.size()));
  }
  FileSystem::Real().WriteFile(path, SerializeTokens(tokens, starts, vocabulary));
  return path;
}

inline std::vector<std::vector<std::int32_t>> RandomSentences(std::mt19937_64& random, int count, int longest,
                                                              int vocabulary) {
  std::vector<std::vector<std::int32_t>> sentences(count);
  for (auto& sentence : sentences) {
    sentence.resize(1 + random() % longest);
    for (auto& token : sentence) token = 4 + static_cast<std::int32_t>(random() % (vocabulary - 4));
  }
  return sentences;
}

// English-like lines from a tiny grammar; the same for the same arguments.
inline std::string MadeUpText(int lines, std::uint64_t seed = 1) {
  const std::vector<std::string> subjects = {"the king", "a shepherd", "his servant", "the people",
                                             "an old woman"};
  const std::vector<std::string> verbs = {"went to", "spoke of", "looked upon", "remembered",
                                          "was afraid of"};
  const std::vector<std::string> objects = {"the city", "a great river", "the mountain", "naïve angels",
                                            "seven days"};
  std::mt19937_64 random(seed);
  std::string text;
  for (int i = 0; i < lines; ++i)
    text += subjects[random() % 5] + " " + verbs[random() % 5] + " " + objects[random() % 5] + " in year " +
            std::to_string(random() % 100) + ".\n";
  return text;
}

}  // namespace headsweep::testing
