// Damaged sweep files: never a crash, never anything but ConfigError.
#include <gtest/gtest.h>

#include <random>

#include "tests/sweeps/sweep_support.h"

namespace headsweep {
namespace {

const char* const kPieces[] = {"[grid]\n",
                               "[[zip]]\n",
                               "[[include]]\n",
                               "[[exclude]]\n",
                               "[prune]\n",
                               "[model]\n",
                               "[task]\n",
                               "when = \"heads > 1\"\n",
                               "\"model.heads\" = [1, 2, 4]\n",
                               "heads = \"embed / 2\"\n",
                               "embed = \"heads * 3\"\n",
                               "seed = { count = 3 }\n",
                               "seed = { values = [] }\n",
                               "order = [\"random\", 3]\n",
                               "seeds = [1, 1.5]\n",
                               "steps = 1e400\n",
                               "steps = nan\n",
                               "steps = -9223372036854775808\n",
                               "when = \"((((\"\n",
                               "when = \"1/0 > heads\"\n",
                               "when = \"norm == norm\"\n",
                               "layers = \"\"\"2\"\"\"\n",
                               "dropout = 0x10\n",
                               "x.y.z = 1\n",
                               "\"\" = 1\n",
                               "corpus = \"a\\u0000/b\"\n",
                               "heads = [[1, 2], [3]]\n",
                               "heads = [[[]]]\n",
                               "d = 1979-05-27T07:32:00Z\n",
                               "[",
                               "]",
                               "{",
                               "}",
                               "=",
                               "\"",
                               "'",
                               "#",
                               "\\",
                               "\xff\xfe",
                               "\xc3",
                               "\0x",
                               "🧠",
                               "\r\n",
                               ",",
                               ".",
                               "-",
                               "1e",
                               "_",
                               "[[",
                               "\"\"\"",
                               "(",
                               ")",
                               "?",
                               ":",
                               "&&",
                               "!",
                               "%"};

std::string Mutated(std::string text, std::mt19937_64& random) {
  const int edits = static_cast<int>(1 + random() % 6);
  for (int i = 0; i < edits; ++i) {
    const std::size_t at = text.empty() ? 0 : random() % (text.size() + 1);
    switch (random() % 4) {
      case 0:
        text.insert(at, kPieces[random() % std::size(kPieces)]);
        break;
      case 1:
        text.erase(at, 1 + random() % 8);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      default: {  // move a piece of the file to another place
        const std::string piece = text.substr(at, random() % 40);
        text.insert(text.empty() ? 0 : random() % text.size(), piece);
      }
    }
  }
  return text;
}

TEST(Fuzz, DamagedSweepsGiveConfigErrorsOnly) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const std::string base =
      "name = \"fuzz\"\nseed = 3\n[task]\ncorpus = \"kjv\"\n[model]\nlayers = 2\nhead_size = \"embed / "
      "heads\"\n[train]\nsteps = 40\n"
      "[grid]\n\"model.heads\" = [1, 2, 4]\nseed = { count = 2 }\n[[zip]]\n\"model.embed\" = [128, "
      "256]\n\"train.learning_rate\" = [1e-3, 5e-4]\n"
      "[[exclude]]\nwhen = \"model.heads * model.head_size > 200 && norm != "
      "'post'\"\n[[include]]\n\"model.heads\" = 8\n"
      "[prune]\norder = [\"importance\", \"random\"]\nseeds = 2\nstep = 0.1\n[run]\ndevices = 1\n";
  int good = 0, bad = 0;
  for (int i = 0; i < 4000; ++i) {
    const std::string text = Mutated(base, random);
    try {
      const Sweep sweep = Sweep::Parse(text, "fuzz.toml");
      if (sweep.point_count() < 200) MakePlan(sweep, {});
      ++good;
    } catch (const ConfigError& error) {
      EXPECT_FALSE(error.diagnostics().empty());
      ++bad;
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what() << "\n" << text;
    }
    try {
      ParseStageConfig(text, "fuzz.toml");
    } catch (const ConfigError&) {
    }
  }
  EXPECT_GT(good, 0);
  EXPECT_GT(bad, 0);
}

TEST(Fuzz, DeepNestingIsRefusedNotOverflowed) {
  const std::string deep = std::string(100'000, '(') + "1" + std::string(100'000, ')');
  testing::ComplaintsOf(testing::kTop + "[model]\nlayers = \"" + deep + "\"\n");
  testing::ComplaintsOf(testing::kTop + "x = " + std::string(100'000, '[') + "\n");
  testing::ComplaintsOf(testing::kTop + "[model]\nlayers = \"" + std::string(100'000, '-') + "1\"\n");
  testing::ComplaintsOf(testing::kTop + "[model]\nlayers = \"" + std::string(100'000, '!') + "1\"\n");
}

}  // namespace
}  // namespace headsweep
