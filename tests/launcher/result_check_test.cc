// Results that the journal knows are checked by their bytes alone; what happens to damaged ones is in session_test.cc.
#include "launcher/result_check.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "results/stage_file.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

TEST(ResultCheck, OfRecordedStagesNeedsNoHdf5AndSeesEveryKindOfDamage) {
  const testing::TempDir temp;
  const Workspace workspace(temp / "runs");
  FileSystem& files = FileSystem::Real();
  std::map<std::string, std::string> recorded = {{"absent", "{}"}};
  for (const char* stage : {"whole", "short", "flipped", "empty"}) {
    std::filesystem::create_directories(workspace.Trial(stage));
    Provenance provenance;
    provenance.stage_id = stage;
    provenance.kind = "train";
    WriteStageFile(workspace.TrialResult(stage), provenance, {}, {});
    recorded[stage] = R"({"outcome":"finished"})";
  }
  std::filesystem::resize_file(workspace.TrialResult("short"), 1000);
  std::filesystem::resize_file(workspace.TrialResult("empty"), 0);
  std::string bytes = files.ReadFile(workspace.TrialResult("flipped"));
  bytes[bytes.size() - 1] ^= 1;
  files.WriteFile(workspace.TrialResult("flipped"), bytes);

  // A child would be this very program, which does not know `read-results`: it would be taken for one that does not answer.
  const ResultCheck check = CheckResults(workspace, files, {"absent", "whole", "short", "flipped", "empty"}, recorded);
  EXPECT_EQ(check.done, (std::map<std::string, std::string>{{"whole", recorded["whole"]}}));
  ASSERT_EQ(check.damaged.size(), 3u);
  EXPECT_NE(check.damaged.at("short").find("truncated"), std::string::npos);
  EXPECT_NE(check.damaged.at("flipped").find("checksum"), std::string::npos);
  EXPECT_NE(check.damaged.at("empty").find("empty"), std::string::npos);
}

}  // namespace
}  // namespace headsweep
