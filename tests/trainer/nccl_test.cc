// NCCL: that the library is what we think, anywhere; and with one rank on a card, which cluster/gpu_check.sh
// runs. Skips where there is no card (a failure with HEADSWEEP_REQUIRE_CUDA=1), and where the build or the
// machine has no NCCL.
#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

#include "cluster/base/errors.h"
#include "tests/support/temp_dir.h"
#include "tests/trainer/model_support.h"
#include "trainer/collective.h"
#include "trainer/gradient_exchange.h"
#include "trainer/optimizer.h"
#include "trainer/rendezvous.h"

#ifdef HEADSWEEP_WITH_NCCL
#include "trainer/collective_nccl.h"
#endif

namespace headsweep::testing {
namespace {

class NcclOnCard : public ::testing::Test {
 protected:
  void SetUp() override {
    const GpuReport report = ProbeGpus();
    if (report.devices.empty()) {
      const char* required = std::getenv("HEADSWEEP_REQUIRE_CUDA");
      ASSERT_STRNE(required != nullptr ? required : "", "1") << report.problem->message;
      GTEST_SKIP() << report.problem->message;
    }
#ifdef HEADSWEEP_WITH_NCCL
    backend_ = MakeBackend({.device = "cuda", .precision = "bfloat16"});
    rendezvous_ = MakeFileRendezvous(FileSystem::Real(), folder_ / "meet");
    try {
      collective_ = MakeNcclCollective({.timeout_seconds = 30}, *rendezvous_, backend_->CardStream());
    } catch (const Unsupported& error) {
      GTEST_SKIP() << error.what();
    }
    std::printf("%s\n", collective_->description().c_str());
#else
    GTEST_SKIP() << "this program was built without NCCL";
#endif
  }

  TempDir folder_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<Collective> collective_;
};

TEST_F(NcclOnCard, EveryOperationOfOneRankLeavesWhatItHas) {
  constexpr std::int64_t kCount = 100003;
  std::vector<float> values(kCount), out(kCount);
  std::iota(values.begin(), values.end(), 1.0f);
  auto* device = static_cast<float*>(backend_->Allocate(kCount * sizeof(float)));
  backend_->CopyIn(device, values.data(), kCount);
  collective_->AllReduceSum(device, kCount);  // of what is still being copied in
  collective_->Wait();
  collective_->AllGatherShards(device, kCount, sizeof(float));
  backend_->CopyOut(out.data(), device, kCount);
  EXPECT_EQ(out, values);
  double sums[] = {1.5, -2};
  collective_->AllReduceSum(sums, 2);
  EXPECT_EQ(sums[0], 1.5);
  EXPECT_EQ(sums[1], -2);
  char text[] = "to all";
  collective_->Broadcast(text, sizeof text, 0);
  EXPECT_STREQ(text, "to all");
  EXPECT_EQ(collective_->AllGather("mine"), std::vector<std::string>{"mine"});
  collective_->Barrier();
  backend_->Free(device);
}

// Steps whose backward pass is a graph for each stretch, with buckets leaving between them, end with the
// weights of steps without any exchange: the sum over one rank is what it has.
TEST_F(NcclOnCard, GradientsLeaveInBucketsBetweenTheGraphsOfABackwardPass) {
  const ModelShape shape = TinyShape();
  const Batch batch = SampleBatch(shape, 4, 4);
  std::vector<std::vector<float>> weights;
  for (const bool exchanges : {false, true}) {
    Model model(*backend_, shape, 4, Model::Purpose::kTrain);
    model.SetParameters(SampleParameters(shape, 4));
    Optimizer optimizer(model, TrainConfig{});
    GradientExchange exchange(*collective_, model, /*bucket_bytes=*/256);
    const auto losses = backend_->MakeMailbox(std::int64_t{batch.B} * batch.T);
    for (int step = 1; step <= 6; ++step) {
      ForwardBackwardOptions options;
      options.gradient_scale = GradientScale(batch);
      options.dropout = 0.1f;
      options.step = step;
      options.on_layer_done = [&](int layer) {
        if (exchanges) exchange.LayerDone(layer);
      };
      model.ZeroGradients();
      model.ForwardBackward(batch, options, *losses, 0);
      if (exchanges) exchange.Finish();
      optimizer.Clip();
      optimizer.Update(0.01, step);
    }
    losses->Wait();
    weights.push_back(model.GetParameters());
  }
  EXPECT_EQ(weights[1], weights[0]);
}

TEST(Nccl, TheInstalledLibraryHasEveryFunctionThatIsUsed) {
#ifdef HEADSWEEP_WITH_NCCL
  try {
    EXPECT_GE(NcclVersion(), 21400);
  } catch (const Unsupported& error) {
    GTEST_SKIP() << error.what();
  }
#else
  GTEST_SKIP() << "this program was built without NCCL";
#endif
}

}  // namespace
}  // namespace headsweep::testing
