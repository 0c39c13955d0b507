// The sweeps that come with headsweep, and every example of the language's reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/sweeps/sweep_support.h"

namespace headsweep {
namespace {

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

const std::string kFolder = std::string(HEADSWEEP_SOURCE_DIR) + "/sweeps";

TEST(Shipped, EverySweepIsPlanned) {
  std::set<std::string> names;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(kFolder)) {
    if (entry.path().extension() != ".toml") continue;
    SCOPED_TRACE(entry.path().string());
    const Sweep sweep = Sweep::Load(entry.path().string());
    const Plan plan = MakePlan(sweep, [](const TaskConfig& task) { return task.corpus; });
    EXPECT_GT(plan.trials, 1u);
    EXPECT_TRUE(names.insert(sweep.name()).second) << "two sweeps share the name, and with it a folder";
  }
  EXPECT_GE(names.size(), 5u);
  EXPECT_EQ(names.count("quickstart"), 1u);
}

std::set<std::string> TrainIds(const std::string& file) {
  const Plan plan = MakePlan(Sweep::Load(kFolder + file), [](const TaskConfig& task) { return task.corpus; });
  std::set<std::string> ids;
  for (const PlanStage& stage : plan.stages) {
    if (stage.parent < 0) ids.insert(plan.Id(stage));
  }
  return ids;
}

TEST(Shipped, SweepsOfOnePaperShareTheirModels) {
  std::set<std::string> shared = TrainIds("/papers/low_rank_kjv_standard.toml");
  const std::set<std::string> fixed = TrainIds("/papers/low_rank_kjv_fixed.toml");
  std::erase_if(shared, [&](const std::string& id) { return fixed.count(id) == 0; });
  EXPECT_EQ(shared.size(), 3u * 3) << "2 x 64, 4 x 32, 8 x 16, three seeds each";
  EXPECT_EQ(TrainIds("/papers/sixteen_heads_kjv.toml"), TrainIds("/papers/sixteen_heads_kjv_token.toml"));
}

// Fenced blocks: ```toml is a whole sweep, ```toml wrong a sweep that must be refused.
TEST(Shipped, EveryExampleOfTheReferenceIsRight) {
  std::istringstream lines(ReadAll(kFolder + "/LANGUAGE.md"));
  std::string block, kind;
  int good = 0, bad = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("```", 0) == 0 && kind.empty()) {
      kind = line.substr(3).empty() ? "text" : line.substr(3);
      block.clear();
    } else if (line == "```") {
      if (kind == "toml") {
        EXPECT_EQ(testing::ComplaintsOf(block), "") << block;
        ++good;
      } else if (kind == "toml wrong") {
        EXPECT_NE(testing::ComplaintsOf(block), "") << block;
        ++bad;
      }
      kind.clear();
    } else {
      block += line + "\n";
    }
  }
  EXPECT_GE(good, 5);
  EXPECT_GE(bad, 1);
}

TEST(Shipped, TheReferenceNamesEveryKey) {
  const std::string text = ReadAll(kFolder + "/LANGUAGE.md");
  for (const KeySpec& key : AllKeys()) {
    if (key.use == KeyUse::kInternal || key.name == "prune.seed") continue;
    EXPECT_THAT(text, ::testing::HasSubstr("`" + key.name + "`"));
  }
}

}  // namespace
}  // namespace headsweep
