// A file system that fills up while a sweep runs: a small tmpfs, where the test may mount one.
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cluster/base/errors.h"
#include "tests/crash/disturbed_sweep.h"

namespace headsweep {
namespace {

using namespace testing;

class DiskFullTest : public DisturbedSweepTest {
 protected:
  // False, with a skip, where this process may not mount.
  bool Mount(const std::string& size) {
    ::mkdir((temp_ / "small").c_str(), 0755);
    const std::string options = "size=" + size;
    if (::mount("tmpfs", (temp_ / "small").c_str(), "tmpfs", mounted_ ? MS_REMOUNT : 0, options.c_str()) != 0)
      return false;
    mounted_ = true;
    return true;
  }
  void TearDown() override {
    if (mounted_) ::umount2((temp_ / "small").c_str(), MNT_DETACH);
  }

  bool mounted_ = false;
};

TEST_F(DiskFullTest, StopsResumableNamingTheFileSystemAndGoesOnWhenThereIsRoom) {
  if (!Mount("64m"))
    GTEST_SKIP() << "cannot mount a tmpfs here (" << std::strerror(errno)
                 << "); run as root to test full disks";
  const Digests reference = Reference();
  const Workspace workspace(temp_ / "small/runs");
  // Room for the data and the first checkpoints, not for the rest: what the undisturbed run needed, halved
  // until it is too little.
  int stopped_after = 0;
  std::string output;
  for (int kib = 1024; kib >= 64 && stopped_after == 0; kib = kib * 3 / 4) {
    FileSystem::Real().RemoveAll(workspace.root());
    ASSERT_TRUE(Mount(std::to_string(kib) + "k")) << std::strerror(errno);
    const Finished full = Start(workspace)->Wait();
    output = full.output;
    if (full.code == kExitResumable) stopped_after = kib;
    ASSERT_TRUE(full.code == 0 || full.code == kExitResumable || full.code == kExitFailed)
        << full.code << ": " << output;
    EXPECT_EQ(CountTrialProcesses(workspace.root()), 0);
  }
  ASSERT_GT(stopped_after, 0) << "no size was too small while trials ran: " << output;
  EXPECT_NE(output.find("No space left on device"), std::string::npos) << output;
  EXPECT_NE(output.find("the file system at " + (temp_ / "small") + " has "), std::string::npos) << output;
  EXPECT_NE(output.find("bytes free"), std::string::npos) << output;
  EXPECT_NE(output.find("headsweep resume s"), std::string::npos) << output;

  ASSERT_TRUE(Mount("64m")) << std::strerror(errno);
  const Finished end = Start(workspace)->Wait();
  EXPECT_EQ(end.code, 0) << end.output;
  EXPECT_EQ(DigestsOf(workspace), reference);
  ExpectNothingRanTwice(workspace);
}

}  // namespace
}  // namespace headsweep
