#include "launcher/commands/submit_options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kConfig =
    "partition = \"gpu\"\n"
    "time = 240\n"
    "gpus_per_node = 4\n"
    "setup = [\"module load a\", \"module load b\"]\n"
    "[profile.debug]\n"
    "partition = \"debug\"\n"
    "nodes = \"1-2\"\n";

std::string ComplaintAbout(const std::string& text, const std::string& profile = "") {
  try {
    ReadClusterConfig(text, "cluster.toml", profile);
  } catch (const ConfigError& error) {
    std::string all;
    for (const Diagnostic& diagnostic : error.diagnostics()) all += ToString(diagnostic) + "\n";
    return all;
  }
  return "";
}

TEST(ClusterConfig, DefaultsAndProfile) {
  const JobRequest site = ReadClusterConfig(kConfig, "cluster.toml", "");
  EXPECT_EQ(site.partition, "gpu");
  EXPECT_EQ(site.time, "240");
  EXPECT_EQ(site.gpus_per_node, 4);
  EXPECT_EQ(site.nodes, "1");
  EXPECT_THAT(site.setup, ElementsAre("module load a", "module load b"));
  const JobRequest debug = ReadClusterConfig(kConfig, "cluster.toml", "debug");
  EXPECT_EQ(debug.partition, "debug");
  EXPECT_EQ(debug.nodes, "1-2");
  EXPECT_EQ(debug.gpus_per_node, 4) << "what a profile does not say is the site's";
  EXPECT_EQ(ReadClusterConfig("", "cluster.toml", ""), JobRequest{});
}

TEST(ClusterConfig, MistakesAreNamedWithTheirPlace) {
  EXPECT_THAT(ComplaintAbout("partitoin = \"gpu\"\n"), HasSubstr("cluster.toml:1:1"));
  EXPECT_THAT(ComplaintAbout("partitoin = \"gpu\"\n"), HasSubstr("partition"));
  EXPECT_THAT(ComplaintAbout("gpus_per_node = \"four\"\nsetup = \"module load x\"\n"),
              ::testing::AllOf(HasSubstr("cluster.toml:1:"), HasSubstr("cluster.toml:2:")));
  EXPECT_THAT(ComplaintAbout("[profile.a]\nnods = 2\n"), HasSubstr("cluster.toml:2:1"))
      << "also of a profile that is not used";
  EXPECT_THAT(ComplaintAbout(kConfig, "debgu"), HasSubstr("there is: debug"));
}

}  // namespace
}  // namespace headsweep
