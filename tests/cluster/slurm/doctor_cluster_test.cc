#include "cluster/doctor_cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/file_system.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;

NodeLook Look(const std::string& host) { return {host, 100, true, "", 50, "eth0"}; }

const Finding* Find(const std::vector<Finding>& findings, const std::string& subject) {
  for (const Finding& finding : findings)
    if (finding.subject == subject) return &finding;
  return nullptr;
}

TEST(DoctorCluster, HealthyNodesAreNoProblem) {
  const std::vector<Finding> findings = JudgeNodeLooks({Look("n0"), Look("n1")}, 2, 99, 101, {"n0", "n1"});
  EXPECT_FALSE(HasProblem(findings)) << FormatFindings(findings);
  EXPECT_EQ(findings.size(), 5u);
}

TEST(DoctorCluster, AWorkspaceThatIsNotSharedIsOneInEitherDirection) {
  NodeLook blind = Look("n1");
  blind.reads = false;
  blind.problem = "read from-login: No such file or directory";
  for (const auto& findings : {JudgeNodeLooks({Look("n0"), blind}, 2, 99, 101, {"n0", "n1"}),
                               JudgeNodeLooks({Look("n0"), Look("n1")}, 2, 99, 101, {"n0"})}) {
    const Finding* shared = Find(findings, "shared workspace");
    ASSERT_NE(shared, nullptr);
    EXPECT_EQ(shared->level, FindingLevel::kProblem);
    EXPECT_THAT(shared->text, HasSubstr("n1"));
    EXPECT_FALSE(shared->remedy.empty());
  }
}

TEST(DoctorCluster, ClocksSpaceInterfacesAndMissingNodesAreTold) {
  NodeLook odd = Look("n1");
  odd.time = 160;
  odd.free_gib = 0.5;
  odd.interfaces = "ib0";
  const std::vector<Finding> findings = JudgeNodeLooks({Look("n0"), odd}, 3, 99, 101, {"n0", "n1"});
  EXPECT_EQ(Find(findings, "nodes")->level, FindingLevel::kProblem);
  EXPECT_THAT(Find(findings, "clocks")->text, HasSubstr("n1 by 59 s"));
  EXPECT_EQ(Find(findings, "free space there")->level, FindingLevel::kNote);
  EXPECT_THAT(Find(findings, "interfaces")->remedy, HasSubstr("NCCL_SOCKET_IFNAME"));
  EXPECT_EQ(Find(JudgeNodeLooks({}, 2, 0, 0, {}), "nodes")->level, FindingLevel::kProblem);
}

TEST(DoctorCluster, MpiThatDoesNotFitIsToldWithItsRemedy) {
  const auto look = [](const std::string& host, int ranks, bool exchanged, const std::string& problem) {
    return MpiLook{host, "Open MPI v4.1.4", ranks, exchanged, problem};
  };
  const std::vector<MpiLook> well = {look("n0", 2, true, ""), look("n1", 2, true, "")};
  const std::vector<MpiLook> read = ParseMpiLooks("chatter\n" + FormatMpiLook(well[0]) + "headsweep-mpi|{\n" + FormatMpiLook(well[1]));
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[1].host, "n1");
  EXPECT_EQ(JudgeMpiLooks(read, 2, "pmix", "").level, FindingLevel::kOk);
  EXPECT_THAT(JudgeMpiLooks(read, 2, "pmix", "").text, HasSubstr("Open MPI v4.1.4"));
  const auto problem = [](const std::vector<MpiLook>& looks, const std::string& complaint) {
    const Finding finding = JudgeMpiLooks(looks, 2, "pmi2", complaint);
    EXPECT_EQ(finding.level, FindingLevel::kProblem);
    EXPECT_FALSE(finding.remedy.empty());
    return finding.text + "\n" + finding.remedy;
  };
  EXPECT_THAT(problem({look("n0", 1, true, ""), look("n1", 1, true, "")}, ""), HasSubstr("MPI sees 1 of 2 processes"));
  EXPECT_THAT(problem({look("n0", 2, false, ""), look("n1", 2, true, "")}, ""), HasSubstr("1 of 2 nodes could"));
  EXPECT_THAT(problem({look("n0", 0, false, "no peers")}, "srun ended"), HasSubstr("no peers"));
  EXPECT_THAT(problem({well[0]}, "n1 said nothing"), HasSubstr("n1 said nothing"));
  EXPECT_THAT(problem({}, "invalid MPI type"), HasSubstr("invalid MPI type"));
  std::vector<MpiLook> mixed = well;
  mixed[1].library = "MPICH 4.0";
  EXPECT_THAT(problem(mixed, ""), HasSubstr("different MPI libraries: MPICH 4.0; Open MPI v4.1.4"));
}

TEST(DoctorCluster, ANodeReadsWritesAndReports) {
  const testing::TempDir temp;
  FileSystem::Real().WriteFile(temp / "from-login", "token");
  const NodeLook look = LookFromNode(temp.path(), "token");
  EXPECT_TRUE(look.reads);
  EXPECT_EQ(look.problem, "");
  EXPECT_TRUE(FileSystem::Real().Exists(temp / ("from-" + look.host)));
  EXPECT_FALSE(LookFromNode(temp.path(), "another").reads);
  EXPECT_NE(LookFromNode(temp / "nowhere", "token").problem, "");
  const std::vector<NodeLook> read = ParseNodeLooks("srun: hello\n" + FormatNodeLook(look) + "headsweep-node|{\n");
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].host, look.host);
  EXPECT_EQ(read[0].interfaces, look.interfaces);
}

}  // namespace
}  // namespace headsweep
