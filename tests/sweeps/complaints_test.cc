// Everything that is wrong with a file is told at once, at its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/sweeps/sweep_support.h"

namespace headsweep {
namespace {

using testing::ComplaintsOf;
using ::testing::HasSubstr;
using testing::kTop;

TEST(Complaints, TenMistakesGiveTenComplaintsAtTheirPlaces) {
  const std::string text =
      "name = \"ten\"\n"                               // 1
      "[task]\n"                                       // 2
      "kind = \"translation\"\n"                       // 3: not in this version
      "lenght = 64\n"                                  // 4: unknown key
      "[model]\n"                                      // 5
      "embed = \"wide\"\n"                             // 6: unknown name
      "dropout = 1.5\n"                                // 7: out of range
      "tied = 1\n"                                     // 8: wrong type
      "[train]\n"                                      // 9
      "steps = 10\n"                                   // 10
      "warmup_steps = 20\n"                            // 11: more than steps
      "[grid]\n"                                       // 12
      "\"model.layers\" = []\n"                        // 13: empty axis
      "\"model.heads\" = [1, 2]\n"                     // 14
      "[[zip]]\n"                                      // 15
      "\"model.heads\" = [3, 4]\n"                     // 16: an axis already
      "[[zip]]\n"                                      // 17
      "\"train.batch\" = [1, 2, 3]\n"                  // 18
      "\"train.learning_rate\" = [1e-3, 1e-4]\n"       // 19: lengths differ
      "[prune]\n"                                      // 20
      "order = [\"importance\", \"alphabetical\"]\n";  // 21: unknown order
  EXPECT_EQ(
      ComplaintsOf(text, "ten.toml"),
      "ten.toml:3:8: task kind \"translation\" is not available in this version; available: language-model\n"
      "ten.toml:4:1: unknown key \"task.lenght\"; did you mean \"task.length\"?\n"
      "ten.toml:6:9: model.embed = \"wide\": unknown name \"wide\"\n"
      "ten.toml:7:11: model.dropout = 1.5 is out of range: 0 to below 1\n"
      "ten.toml:8:8: model.tied must be true or false, not a whole number\n"
      "ten.toml:11:16: train.warmup_steps = 20 is more than train.steps = 10\n"
      "ten.toml:13:18: the axis model.layers is empty\n"
      "ten.toml:16:1: model.heads is an axis already, at line 14, column 1\n"
      "ten.toml:19:1: the axes of a [[zip]] move together: train.learning_rate has 2 values, but train.batch "
      "has 3\n"
      "ten.toml:21:24: prune.order cannot be \"alphabetical\"; it is one of: importance, "
      "importance-rescored, ablation, "
      "random, reversed, magnitude");
}

TEST(Complaints, ValuesOfTheGridAreCheckedWithTheirExpressions) {
  EXPECT_EQ(ComplaintsOf(kTop + "[grid]\nheads = [2, 3, 5]\nhead_size = [\"embed / heads\", \"embed * "
                                "heads\"]\nseed = { count = 3 }\n"),
            "s.toml:4:14: model.head_size = \"embed / heads\" is 42.666666666666664, not a whole number with "
            "model.embed = 128, "
            "model.heads = 3 (and 1 like it with other values)\n"
            "s.toml:4:31: model.head_size = \"embed * heads\" is 640, out of range (1 to 512) with "
            "model.embed = 128, "
            "model.heads = 5");
}

TEST(Complaints, AnExcludeThatLeavesNothingIsAMistake) {
  EXPECT_EQ(ComplaintsOf(kTop + "[grid]\nheads = [1, 2]\n[[exclude]]\nwhen = \"heads > 0\"\n"),
            "s.toml:5:8: the [[exclude]] rules leave none of the 2 points");
}

struct Mistake {
  const char* text;
  const char* complaint;
};

TEST(Complaints, EachMistakeIsToldWithWhatToDo) {
  const Mistake mistakes[] = {
      {"", "s.toml:1:1: the sweep has no name"},
      {"name = 3\n", "s.toml:1:8: name must be text, not a whole number"},
      {"name = \"t\"\nseed = { count = 3 }\n", "several seeds go under [grid]"},
      {"name = \"t\"\ngird = 3\n", "s.toml:2:1: unknown key \"gird\"; did you mean \"grid\"?"},
      {"name = \"t\"\ngrid = 3\n", "grid must be a section"},
      {"name = \"t\"\nexclude = 3\n", "must be written as [[exclude]]"},
      {"name = \"t\"\n[grid]\nprune.order = [\"random\"]\n", "write it under [prune]"},
      {"name = \"t\"\n[grid]\nrun.threads = [1, 2]\n", "does not change the result"},
      {"name = \"t\"\n[grid]\nmicro_batch = [1, 2]\n", "does not change the result"},
      {"name = \"t\"\n[grid]\nhaeds = [1, 2]\n",
       "s.toml:3:1: unknown key \"haeds\"; did you mean \"heads\"?"},
      {"name = \"t\"\n[grid]\nheads = { count = 3 }\n", "model.heads must be"},
      {"name = \"t\"\n[grid]\nseed = { cuont = 3 }\n", "seed takes a number, a list, { count = 3 }"},
      {"name = \"t\"\n[grid]\nseed = { count = 0 }\n", "seed.count must be a whole number from 1"},
      {"name = \"t\"\n[grid]\nseed = { count = 1.5 }\n", "seed.count must be a whole number from 1"},
      {"name = \"t\"\n[grid]\nseed = { values = [] }\n", "the axis seed is empty"},
      {"name = \"t\"\n[grid]\nnorm = [\"pre\", \"pots\"]\n",
       "s.toml:3:16: model.norm cannot be \"pots\"; it is one of: pre, post (did you mean \"post\"?)"},
      {"name = \"t\"\n[grid]\nheads = [1, true]\n", "s.toml:3:13: model.heads must be"},
      {"name = \"t\"\n[[zip]]\n", "[[zip]] is empty"},
      {"name = \"t\"\n[[zip]]\nheads = 4\n", "must be a list"},
      {"name = \"t\"\n[[exclude]]\n", "[[exclude]] needs when"},
      {"name = \"t\"\n[[exclude]]\nwhne = \"heads > 1\"\n", "unknown key \"whne\" in [[exclude]]"},
      {"name = \"t\"\n[[exclude]]\nwhen = true\n", "when must be a condition in quotes"},
      {"name = \"t\"\n[[exclude]]\nwhen = \"heads >\"\n", "s.toml:3:8: when = \"heads >\""},
      {"name = \"t\"\n[[exclude]]\nwhen = \"prune.step > 1\"\n", "stage after training"},
      {"name = \"t\"\n[grid]\nheads = [1, 2]\n[[exclude]]\nwhen = \"1 / (heads - 1)\"\n",
       "s.toml:5:8: when \"1 / (heads - 1)\" is not a finite number"},
      {"name = \"t\"\n[[include]]\n", "[[include]] is empty"},
      {"name = \"t\"\n[[include]]\nheads = 4\nmodel.heads = 5\n", "is in this [[include]] already"},
      {"name = \"t\"\n[prune]\norder = []\n", "the list of prune.order is empty"},
      {"name = \"t\"\n[prune]\nseed = 3\n", "are written seeds = 3"},
      {"name = \"t\"\n[prune]\nseeds = 0\n", "prune.seeds must be a whole number from 1"},
      {"name = \"t\"\n[prune]\nodrer = \"random\"\n", "did you mean \"prune.order\"?"},
      {"name = \"t\"\n[prune]\nstep = 0\n", "prune.step = 0 is out of range: above 0 to 1"},
      {"name = \"t\"\n[task]\nfingerprint = \"x\"\n", "unknown key \"task.fingerprint\""},
      {"name = \"t\"\n[task]\ncorpus = \"\"\n", "task.corpus must not be empty"},
      {"name = \"t\"\n[model]\nembed = \"feed_forward\"\n", "these expressions need each other"},
  };
  for (const Mistake& mistake : mistakes) {
    EXPECT_THAT(ComplaintsOf(mistake.text), HasSubstr(mistake.complaint)) << mistake.text;
  }
}

TEST(Complaints, SyntaxErrorsDoNotHideOtherMistakes) {
  const std::string complaints =
      ComplaintsOf("name = \"t\"\n[model]\nembed = 12x\nlayers = 2\nlayers = 3\nhaeds = 4\n");
  EXPECT_THAT(complaints, HasSubstr("s.toml:3:"));
  EXPECT_THAT(complaints, HasSubstr("s.toml:5:"));
  EXPECT_THAT(complaints, HasSubstr("s.toml:6:1: unknown key \"model.haeds\""));
}

TEST(Complaints, AMissingBracketIsOneComplaint) {
  const std::string complaints = ComplaintsOf("name = \"t\"\n[grid]\nheads = [1, 2\nlayers = [1]\n");
  EXPECT_EQ(std::count(complaints.begin(), complaints.end(), '\n'), 0) << complaints;
}

TEST(Complaints, AMissingFileIsToldByName) {
  try {
    Sweep::Load("/nonexistent/sweep.toml");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), HasSubstr("/nonexistent/sweep.toml"));
  }
}

}  // namespace
}  // namespace headsweep
