// What Slurm prints, as values; outputs as Slurm 22.05 gave them.
#include "cluster/slurm/answers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cluster/base/run_program.h"
#include "cluster/slurm/quoting.h"
#include "cluster/slurm/slurm.h"

namespace headsweep {
namespace {

TEST(SlurmAnswers, JobsOfEveryKindAreRead) {
  const std::vector<SlurmJob> jobs = ParseJobs(
      "headsweep|7|RUNNING|None|n[0-2]|58:10|2026-12-01T02:57:58|headsweep-0123\n"
      "headsweep|8|PENDING|Resources||10:00|N/A|(null)\n"
      "headsweep|9_4|PENDING|Dependency||1-00:00:00|N/A|a|b\n"
      "headsweep|10|RUNNING|None|n1|UNLIMITED|2026-12-01T02:57:58|x\n");
  ASSERT_EQ(jobs.size(), 4u);
  EXPECT_EQ(jobs[0].id, "7");
  EXPECT_EQ(jobs[0].phase, JobPhase::kRunning);
  EXPECT_EQ(jobs[0].nodes, "n[0-2]");
  EXPECT_EQ(jobs[0].seconds_left, 58 * 60 + 10);
  EXPECT_EQ(jobs[0].comment, "headsweep-0123");
  EXPECT_EQ(jobs[1].phase, JobPhase::kPending);
  EXPECT_EQ(jobs[1].reason, "Resources");
  EXPECT_EQ(jobs[1].start, "");
  EXPECT_EQ(jobs[1].comment, "");
  EXPECT_EQ(jobs[2].id, "9_4");
  EXPECT_EQ(jobs[2].comment, "a|b") << "the last field may hold anything";
  EXPECT_EQ(jobs[3].seconds_left, std::nullopt);
}

TEST(SlurmAnswers, ASitesOwnChatterIsNoJobButAComplaint) {
  const char* output = "Welcome to the cluster!\nheadsweep|7|PENDING|Priority||10:00|N/A|c\nslurm_load_jobs error: x\n";
  EXPECT_EQ(ParseJobs(output).size(), 1u);
  EXPECT_EQ(Complaint(output), "Welcome to the cluster!; slurm_load_jobs error: x");
  EXPECT_TRUE(ParseJobs("headsweep|7|PENDING\n").empty()) << "cut off";
  EXPECT_TRUE(ParseJobs("").empty());
}

TEST(SlurmAnswers, AStateThatIsNotKnownIsNeverTakenForTheEnd) {
  EXPECT_EQ(PhaseOf("A_STATE_OF_TOMORROW"), JobPhase::kRunning);
  EXPECT_EQ(PhaseOf("COMPLETING"), JobPhase::kEnding);
  EXPECT_EQ(PhaseOf("REQUEUED"), JobPhase::kPending);
  for (const char* over : {"COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"})
    EXPECT_EQ(PhaseOf(over), JobPhase::kOver) << over;
}

TEST(SlurmAnswers, SubmissionsAreReadFromTheMiddleOfChatter) {
  EXPECT_EQ(ParseSubmitted("123\n"), "123");
  EXPECT_EQ(ParseSubmitted("sbatch: warning: 4 things\n123;cluster2\n"), "123");
  EXPECT_EQ(ParseSubmitted("Submitted batch job 123\n"), std::nullopt);
  EXPECT_EQ(ParseSubmitted("sbatch: error: no\n"), std::nullopt);
  EXPECT_EQ(ParseSubmitted(""), std::nullopt);
}

TEST(SlurmAnswers, TimesAreReadAsSlurmReadsThem) {
  EXPECT_EQ(ParseDuration("30"), 30 * 60);
  EXPECT_EQ(ParseDuration("0:58"), 58);
  EXPECT_EQ(ParseDuration("01:30:05"), 5405);
  EXPECT_EQ(ParseDuration("2-00"), 2 * 86400);
  EXPECT_EQ(ParseDuration("1-02:03"), 86400 + 2 * 3600 + 3 * 60);
  EXPECT_EQ(ParseDuration("1-02:03:04"), 86400 + 2 * 3600 + 3 * 60 + 4);
  for (const char* none : {"", "UNLIMITED", "INVALID", "NOT_SET", "1:2:3:4", "-5", "1-", "5 minutes", "1.5"})
    EXPECT_EQ(ParseDuration(none), std::nullopt) << none;
  EXPECT_EQ(FormatSlurmTime(600), "00:10:00");
  EXPECT_EQ(FormatSlurmTime(86400 + 3661), "1-01:01:01");
}

TEST(SlurmAnswers, KindsOfNodesOfOnePartitionAreJoined) {
  const std::vector<SlurmPartition> partitions = ParsePartitions(
      "headsweep|main*|up|1/2/0/3|4|gpu:fake:2|infinite\n"
      "headsweep|main*|up|0/1/1/2|64+|(null)|infinite\n"
      "headsweep|old|down|0/0/4/4|16|(null)|1-00:00:00\n");
  ASSERT_EQ(partitions.size(), 2u);
  EXPECT_EQ(partitions[0].name, "main");
  EXPECT_TRUE(partitions[0].is_default);
  EXPECT_EQ(partitions[0].nodes, 5);
  EXPECT_EQ(partitions[0].idle_nodes, 3);
  EXPECT_EQ(partitions[0].cpus_per_node, 4);
  EXPECT_EQ(partitions[0].gpus, "gpu:fake:2");
  EXPECT_FALSE(partitions[1].is_up);
  EXPECT_EQ(partitions[1].gpus, "");
}

TEST(SlurmAnswers, ConfigurationIsReadByName) {
  const auto config = ParseConfig("Configuration data as of 2026\nMaxArraySize            = 1001\nJobRequeue = 1\n");
  EXPECT_EQ(config.at("MaxArraySize"), "1001");
  EXPECT_EQ(config.at("JobRequeue"), "1");
}

TEST(SlurmAnswers, ARequestThatTimedOutMayHaveArrived) {
  EXPECT_TRUE(SaysJobIsChanging("scontrol ended with code 1: Job is pending execution for job 7"));
  EXPECT_FALSE(SaysJobIsChanging("scontrol ended with code 1: Requested operation is presently disabled for job 7"));
  EXPECT_TRUE(LeavesOpen("sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"));
  EXPECT_FALSE(LeavesOpen("sbatch: error: invalid partition specified: x"));
  EXPECT_FALSE(LeavesOpen("sbatch: error: Unable to contact slurm controller (connect failure)"));
}

// Every word comes back from a real bash as it was.
TEST(Quoting, TheShellReadsBackWhatWasQuoted) {
  std::string all_bytes;
  for (int c = 1; c < 256; ++c) all_bytes += static_cast<char>(c);
  for (const std::string& word :
       {std::string("plain"), std::string(""), std::string("two words"), std::string("it's"), std::string("$(touch x)`y`"),
        std::string("-n"), std::string("two\nlines"), std::string("a\\b\"c"), std::string("Größe ≠ 大小"), std::string("!*?[]{}~#&;|<>"),
        std::string("tab\tand\rreturn"), std::string("\\n'\n"), all_bytes}) {
    const ProgramResult result = RunProgram({"bash", "-c", "printf %s " + QuoteForShell(word) + "; printf ."}, 10);
    EXPECT_EQ(result.output, word + ".") << QuoteForShell(word);
  }
  EXPECT_EQ(QuoteForShell("/usr/bin/headsweep"), "/usr/bin/headsweep") << "readable where it can be";
}

TEST(Quoting, AnSbatchLineHoldsNoNewline) {
  EXPECT_EQ(QuoteForSbatch("gpu", "--partition"), "gpu");
  EXPECT_EQ(QuoteForSbatch("a b", "--partition"), "'a b'");
  EXPECT_THROW(QuoteForSbatch("a\n#SBATCH --uid=0", "--partition"), std::exception);
  EXPECT_EQ(EscapePercent("50%j"), "50%%j");
}

}  // namespace
}  // namespace headsweep
