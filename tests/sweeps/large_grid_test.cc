// Grids far too large to expand: counted, sampled and indexed; and the numbering of small ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <random>
#include <set>
#include <sstream>

#include "sweeps/expansion.h"
#include "tests/support/temp_dir.h"
#include "tests/sweeps/sweep_support.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;

std::string List(int first, int count) {
  std::string list = "[";
  for (int i = 0; i < count; ++i) list += (i > 0 ? ", " : "") + std::to_string(first + i);
  return list + "]";
}

// 2^10 x 2^10 x 2^10 points.
std::string Huge() {
  return testing::kTop + "[model]\nhead_size = 16\n[grid]\nsteps = " + List(1024, 1024) +
         "\nvocabulary = " + List(1000, 1024) + "\nseed = { count = 1024 }\n";
}

TEST(LargeGrid, AGridOf2To30PointsIsCountedAndIndexed) {
  const Sweep sweep = Sweep::Parse(Huge(), "huge.toml");
  EXPECT_EQ(sweep.point_count(), std::uint64_t{1} << 30);
  EXPECT_EQ(sweep.CountNotExcluded(), std::uint64_t{1} << 30);
  EXPECT_EQ(sweep.DescribePoint((std::uint64_t{1} << 30) - 1),
            "steps = 2047, vocabulary = 2023, seed = 1024");
  const auto point = sweep.PointAt((std::uint64_t{3} << 20) + (5 << 10) + 7);
  ASSERT_TRUE(point);
  EXPECT_EQ(point->train.steps, 1027);
  EXPECT_EQ(point->task.vocabulary, 1005);
  EXPECT_EQ(point->seed, 8u);
}

TEST(LargeGrid, ExclusionsAreCountedOverTheAxesTheyDependOn) {
  const Sweep sweep = Sweep::Parse(Huge() +
                                       "[[exclude]]\nwhen = \"steps < 1024 + 256\"\n[[exclude]]\nwhen = "
                                       "\"seed % 2 == 0 && vocabulary >= 1512\"\n",
                                   "huge.toml");
  EXPECT_EQ(sweep.CountNotExcluded(), std::uint64_t{768} * (1024 * 1024 - 512 * 512));
  EXPECT_EQ(sweep.Explain(0, 2)->count, std::uint64_t{256} << 20);
  EXPECT_EQ(sweep.Explain(1, 2)->examples.size(), 2u);
}

TEST(LargeGrid, CountsThatWouldTakeTooLongAreNotGuessed) {
  const Sweep sweep =
      Sweep::Parse(Huge() + "[[exclude]]\nwhen = \"steps + seed + vocabulary > 3000\"\n", "huge.toml");
  EXPECT_EQ(sweep.CountNotExcluded(), std::nullopt);
  EXPECT_EQ(sweep.Explain(0, 2), std::nullopt);
}

TEST(LargeGrid, CountingMatchesVisitingEveryPoint) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  const char* conditions[] = {"heads > 2",
                              "heads * head_size > 100",
                              "seed == 2 || layers == 1",
                              "embed / heads == head_size",
                              "seed % 2 == 1 && layers > 1",
                              "warmup_steps > 25"};
  for (int i = 0; i < 20; ++i) {
    std::string text =
        testing::kTop +
        "[grid]\nheads = [1, 2, 4, 8]\nhead_size = [\"embed / heads\", 8, 16]\nlayers = [1, 2, 3]\n"
        "seed = { count = 3 }\nsteps = [100, 200, 300]\n[[include]]\nheads = 16\n";
    for (const char* condition : conditions) {
      if (random() % 2 == 0) text += "[[exclude]]\nwhen = \"" + std::string(condition) + "\"\n";
    }
    const Sweep sweep = Sweep::Parse(text, "s.toml");
    std::uint64_t left = 0;
    for (std::uint64_t p = 0; p < sweep.grid_count(); ++p) left += sweep.PointAt(p) ? 1 : 0;
    EXPECT_EQ(sweep.CountNotExcluded(), left) << text;
  }
}

TEST(LargeGrid, EveryNumberIsAnotherPoint) {
  const std::uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 20; ++i) {
    const auto size = [&] { return static_cast<int>(1 + random() % 6); };
    const Sweep sweep =
        Sweep::Parse(testing::kTop + "[model]\nhead_size = 8\n[grid]\nheads = " + List(1, size()) +
                         "\nlayers = " + List(1, size()) + "\nvocabulary = " + List(500, size()) +
                         "\n[[include]]\nheads = " + List(100, size()) + "\n",
                     "s.toml");
    std::set<std::string> points;
    for (std::uint64_t p = 0; p < sweep.point_count(); ++p) points.insert(CanonicalJson(*sweep.PointAt(p)));
    EXPECT_EQ(points.size(), sweep.point_count());
  }
}

TEST(LargeGrid, MistakesInALargeGridAreFoundAtItsAxes) {
  EXPECT_THAT(testing::ComplaintsOf(testing::kTop + "[grid]\nsteps = " + List(1, 500) +
                                    "\nseed = { count = 500 }\nheads = [1, 2, 3]\n"),
              HasSubstr("42.666666666666664, not a whole number"));
  EXPECT_THAT(testing::ComplaintsOf(testing::kTop + "[grid]\nsteps = " + List(1, 500) +
                                    "\nseed = { count = 500 }\nheads = [1, 2, 5000]\n"),
              HasSubstr("model.heads = 5000 is out of range"));
}

TEST(LargeGrid, TooManyPointsCannotBePlannedAndMoreThan2To62NotWritten) {
  EXPECT_THROW(MakePlan(Sweep::Parse(Huge(), "huge.toml"), {}), ConfigError);
  std::string text = testing::kTop + "[grid]\nseed = { count = 1000000 }\n";
  for (const char* key : {"steps", "vocabulary", "batch", "evaluate_every", "evaluate_examples"}) {
    text += std::string(key) + " = " + List(1000, 1000) + "\n";
  }
  EXPECT_THAT(testing::ComplaintsOf(text), HasSubstr("more than 2^62 points"));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// The counts of 2^30 points in 256 MiB of address space, in a process of its own.
TEST(LargeGrid, CountingNeedsLittleMemory) {
  const testing::TempDir directory;
  const std::string path = directory / "huge.toml";
  {
    FILE* file = std::fopen(path.c_str(), "w");
    ASSERT_NE(file, nullptr);
    std::fputs((Huge() + "[[exclude]]\nwhen = \"steps < 1280\"\n").c_str(), file);
    std::fclose(file);
  }
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit = {256u << 20, 256u << 20};
    ::setrlimit(RLIMIT_AS, &limit);
    std::ostringstream out, notes;
    try {
      ExpandOptions options;
      options.sweep_path = path;
      options.view = ExpandView::kCount;
      Expand(options, out, notes);
    } catch (...) {
      ::_exit(3);
    }
    ::_exit(out.str().find("trials    at most 805,306,368") == std::string::npos ? 4 : 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

}  // namespace
}  // namespace headsweep
