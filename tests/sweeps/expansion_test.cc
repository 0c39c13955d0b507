// `headsweep expand`: what it prints.
#include "sweeps/expansion.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "sweeps/schema.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSweep =
    "name = \"example\"\n[grid]\nheads = [2, 4]\nhead_size = [\"embed / heads\", 32]\nseed = { count = 2 }\n"
    "[[exclude]]\nwhen = \"heads == 2 && seed == 2\"\n[prune]\norder = [\"importance\", \"random\"]\nseeds = "
    "3\n";

class Expansion : public ::testing::Test {
 protected:
  Expansion() {
    options_.sweep_path = directory_ / "sweep.toml";
    std::ofstream(options_.sweep_path) << kSweep;
    options_.gflops = 100;
  }
  std::string Run(ExpandView view) {
    options_.view = view;
    std::ostringstream out, notes;
    Expand(options_, out, notes);
    notes_ = notes.str();
    return out.str();
  }
  testing::TempDir directory_;
  ExpandOptions options_;
  std::string notes_;
};

TEST_F(Expansion, CountsEverything) {
  EXPECT_EQ(Run(ExpandView::kCount),
            "sweep     example\n"
            "points    8 (2 heads x 2 head_size x 2 seed)\n"
            "excluded  2\n"
            "merged    2\n"
            "trials    4\n"
            "stages    20 (4 train, 16 prune: 4 a trial)\n");
  EXPECT_THAT(notes_,
              HasSubstr("sweep.toml:4:31: warning: (heads = 4, head_size = embed / heads, seed = 1) and"));
}

TEST_F(Expansion, TabulatesTrialsWithTheirCost) {
  const std::string text = Run(ExpandView::kTable);
  EXPECT_THAT(text, HasSubstr("trial  heads  head_size  seed  parameters  GFLOP/step"));
  EXPECT_THAT(text, HasSubstr("    4      4         32     2"));
  EXPECT_THAT(text, HasSubstr("100 GFLOP/s a process (given)"));
  EXPECT_EQ(text.find(" id "), std::string::npos);
  options_.fingerprint_of = [](const TaskConfig&) { return "f"; };
  EXPECT_THAT(Run(ExpandView::kTable), HasSubstr(" id "));
  options_.most_rows = 1;
  EXPECT_THAT(Run(ExpandView::kTable), HasSubstr("… and 3 more trials"));
}

TEST_F(Expansion, ListsPoints) {
  EXPECT_THAT(Run(ExpandView::kList), HasSubstr("\n4\theads = 4, head_size = embed / heads, seed = 1\n"));
}

TEST_F(Expansion, WritesJson) {
  options_.fingerprint_of = [](const TaskConfig&) { return "f"; };
  const auto json = nlohmann::json::parse(Run(ExpandView::kJson));
  EXPECT_EQ(json["trials"], 4);
  EXPECT_EQ(json["stages"].size(), 20u);
  EXPECT_EQ(json["stages"][0]["config"]["model"]["head_size"], 64);
  EXPECT_EQ(json["stages"][0]["id"].get<std::string>().size(), 16u);
  EXPECT_EQ(json["stages"][1]["order"], "importance");
  EXPECT_EQ(json["axes"][1]["values"][0], "embed / heads");
  EXPECT_EQ(json["axes"][1]["values"][1], 32);
  EXPECT_GT(json["stages"][0]["cost"]["seconds"].get<double>(), 0);
}

TEST_F(Expansion, ExplainsExclusions) {
  EXPECT_THAT(Run(ExpandView::kExclusions),
              HasSubstr("sweep.toml:7: when \"heads == 2 && seed == 2\" excludes 2 of 8 points\n"
                        "  heads = 2, head_size = embed / heads, seed = 2\n  …\n"));
}

TEST_F(Expansion, DocumentsEveryKey) {
  const std::string text = Run(ExpandView::kKeys);
  for (const KeySpec& key : AllKeys()) {
    if (key.use == KeyUse::kInternal) continue;
    EXPECT_THAT(text, HasSubstr("  " + key.name + " "));
  }
}

TEST(Human, FormatsCountsBytesAndTimes) {
  EXPECT_EQ(HumanCount(0), "0");
  EXPECT_EQ(HumanCount(1234567), "1,234,567");
  EXPECT_EQ(HumanBytes(1536), "1.5 KiB");
  EXPECT_EQ(HumanBytes(12), "12 B");
  EXPECT_EQ(HumanSeconds(3.14), "3.1 s");
  EXPECT_EQ(HumanSeconds(0), "?");
  EXPECT_EQ(HumanSeconds(42), "42 s");
  EXPECT_EQ(HumanSeconds(86400 * 1500.5), "1,501 days");
  EXPECT_EQ(HumanSeconds(600), "10 min");
  EXPECT_EQ(HumanSeconds(7200), "2.0 h");
}

}  // namespace
}  // namespace headsweep
