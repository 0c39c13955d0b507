// Checkpoints: complete or absent, damaged ones never used, foreign ones refused by name.
#include "trainer/checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cluster/base/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/trainer/model_support.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::SampleParameters;
using testing::TempDir;
using testing::TinyShape;

Checkpoint SampleCheckpoint(std::int64_t step) {
  Checkpoint checkpoint;
  checkpoint.shape = TinyShape();
  checkpoint.stage_id = "0123456789abcdef";
  checkpoint.step = step;
  checkpoint.cursor = {2, 17};
  checkpoint.parameters = SampleParameters(checkpoint.shape, 1);
  checkpoint.m = SampleParameters(checkpoint.shape, 2);
  checkpoint.v = SampleParameters(checkpoint.shape, 3);
  checkpoint.history.steps = {
      {.step = 1, .loss = 2.5, .learning_rate = 0.1, .gradient_norm = 3, .targets = 4}};
  checkpoint.history.evaluations = {{.step = 1, .split = "valid", .nll = 2.25}};
  checkpoint.train_seconds = 12.5;
  return checkpoint;
}

class CheckpointTest : public ::testing::Test {
 protected:
  std::string Write(std::int64_t step, int keep = 0) {
    return WriteCheckpoint(files_, root_, SampleCheckpoint(step), Provenance{}, keep);
  }
  std::string ErrorOf(const std::string& path, const std::string& stage = "0123456789abcdef") {
    try {
      ReadCheckpoint(files_, path, stage);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  TempDir directory_;
  std::string root_ = directory_ / "checkpoint";
  FileSystem& files_ = FileSystem::Real();
};

TEST_F(CheckpointTest, EverythingReadsBackBitByBit) {
  const Checkpoint written = SampleCheckpoint(40);
  const std::string path = Write(40);
  EXPECT_EQ(path, root_ + "/step-40");
  EXPECT_EQ(LatestCheckpoint(files_, root_), path);
  const Checkpoint read = ReadCheckpoint(files_, path, written.stage_id);
  EXPECT_EQ(read.shape, written.shape);
  EXPECT_EQ(read.stage_id, written.stage_id);
  EXPECT_EQ(read.step, 40);
  EXPECT_EQ(read.cursor, written.cursor);
  EXPECT_EQ(read.parameters, written.parameters);
  EXPECT_EQ(read.m, written.m);
  EXPECT_EQ(read.v, written.v);
  EXPECT_EQ(read.train_seconds, 12.5);
  EXPECT_EQ(TablesDigest(read.history, 0), TablesDigest(written.history, 0));
}

TEST_F(CheckpointTest, WithoutAnOptimiserThereIsNoOptimiserFile) {
  Checkpoint checkpoint = SampleCheckpoint(3);
  checkpoint.m.clear();
  checkpoint.v.clear();
  const std::string path = WriteCheckpoint(files_, root_, checkpoint, Provenance{}, 0);
  EXPECT_FALSE(files_.Exists(path + "/optimizer.safetensors"));
  EXPECT_TRUE(ReadCheckpoint(files_, path, checkpoint.stage_id).m.empty());
}

TEST_F(CheckpointTest, AnotherStagesCheckpointIsRefusedByName) {
  EXPECT_THAT(ErrorOf(Write(5), "fedcba9876543210"),
              HasSubstr("belongs to stage 0123456789abcdef, not to stage fedcba9876543210"));
}

TEST_F(CheckpointTest, OldOnesGoAndNewerDamagedOnesAreNotCounted) {
  for (const std::int64_t step : {10, 20, 30, 9, 100}) Write(step, 2);
  EXPECT_THAT(files_.List(root_), ElementsAre("step-100", "step-30"));
  files_.WriteFile(root_ + "/step-100/state.json", "{");
  Write(40, 2);
  EXPECT_THAT(files_.List(root_), ElementsAre("step-100", "step-30", "step-40"));
  EXPECT_EQ(LatestCheckpoint(files_, root_), root_ + "/step-40");
  Write(100, 2);  // the damaged one is replaced
  EXPECT_THAT(files_.List(root_), ElementsAre("step-100", "step-40"));
  EXPECT_EQ(LatestCheckpoint(files_, root_), root_ + "/step-100");
}

TEST_F(CheckpointTest, LeftoversOfADeadWriterAreNoCheckpointAndAreCleanedUp) {
  files_.CreateDirectories(root_ + "/step-7.tmp-4711");
  files_.WriteFile(root_ + "/step-7.tmp-4711/state.json", "{}");
  EXPECT_EQ(LatestCheckpoint(files_, root_), std::nullopt);
  Write(8);
  EXPECT_THAT(files_.List(root_), ElementsAre("step-8"));
}

TEST_F(CheckpointTest, EveryFileTruncatedOrMissingIsNoticedAndTheOneBeforeIsUsed) {
  const std::string before = Write(10), path = Write(20);
  for (const std::string& name : files_.List(path)) {
    SCOPED_TRACE(name);
    const std::string file = path + "/" + name, bytes = files_.ReadFile(file);
    const std::size_t stride = std::max<std::size_t>(1, bytes.size() / 40);
    for (std::size_t length = 0; length + 2 < bytes.size(); length += stride) {
      files_.WriteFile(file, bytes.substr(0, length));
      EXPECT_THAT(ErrorOf(path), HasSubstr(name)) << "cut at " << length;
    }
    EXPECT_EQ(LatestCheckpoint(files_, root_), before);
    files_.Remove(file);
    EXPECT_THAT(ErrorOf(path), HasSubstr(name + " is missing"));
    EXPECT_EQ(LatestCheckpoint(files_, root_), before);
    files_.WriteFile(file, bytes);
    EXPECT_EQ(LatestCheckpoint(files_, root_), path);
  }
}

TEST_F(CheckpointTest, AFlippedByteInAnyFileIsNoticed) {
  const std::string path = Write(20);
  const Checkpoint written = SampleCheckpoint(20);
  for (const std::string& name : files_.List(path)) {
    const std::string file = path + "/" + name, bytes = files_.ReadFile(file);
    const std::size_t stride = bytes.size() / (name == "state.json" ? 300 : 60) + 1;
    for (std::size_t at = 0; at < bytes.size(); at += stride) {
      std::string flipped = bytes;
      flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
      files_.WriteFile(file, flipped);
      const bool space = name == "state.json" && std::isspace(static_cast<unsigned char>(bytes[at])) != 0;
      EXPECT_TRUE(space || ErrorOf(path) != "") << name << ", byte " << at;
    }
    files_.WriteFile(file, bytes);
  }
  EXPECT_EQ(ErrorOf(path), "");
}

}  // namespace
}  // namespace headsweep
