// Which sentence belongs to which split: a rule on line numbers alone, so that it needs no random numbers and
// one can check it by eye. Sentences are taken in blocks of 8 (neighbours share names and phrases, so single
// lines would leak; whole books would make the test set unlike the rest). Of every 20 blocks the 10th is for
// validation, the 20th for testing: 90/5/5. Texts under 160 sentences use blocks of 1.
#pragma once

#include <cstdint>

namespace headsweep {

enum class Split { kTrain, kValid, kTest };
inline constexpr const char* kSplitNames[] = {"train", "valid", "test"};

inline constexpr std::int64_t kBlockSentences = 8;
inline constexpr std::int64_t kCycleBlocks = 20;

// A text needs this many sentences to have all three splits.
inline constexpr std::int64_t kLeastSentences = kCycleBlocks;

// line counts from 0 over the sentences that are not empty.
constexpr Split SplitOf(std::int64_t line, std::int64_t sentences) {
  const std::int64_t block = line / (sentences >= kBlockSentences * kCycleBlocks ? kBlockSentences : 1);
  const std::int64_t place = block % kCycleBlocks;
  return place == kCycleBlocks - 1       ? Split::kTest
         : place == kCycleBlocks / 2 - 1 ? Split::kValid
                                         : Split::kTrain;
}

}  // namespace headsweep
