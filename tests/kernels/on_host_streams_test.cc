// CUDA on the CPU: streams, events and graphs do what the Runtime API's manual says, and mistakes show.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>

#include "kernels/cuda/portable.h"

namespace headsweep::cuda_on_host {
namespace {

using ::testing::HasSubstr;

__global__ void HalfAtBarrier(float* out) {
  if (threadIdx.x < 100) {
    __syncthreads();
  } else {
    __syncwarp(0xFFFFFFFFu);
  }
  out[threadIdx.x] = 1;
}
__global__ void AddTo(float* x, float value) { x[threadIdx.x] += value; }

class OnHostStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithFlags(&other_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMalloc(reinterpret_cast<void**>(&x_), 4 * sizeof(float)), cudaSuccess);
  }
  void TearDown() override {
    cudaFree(x_);
    cudaStreamDestroy(stream_);
    cudaStreamDestroy(other_);
    cudaGetLastError();
  }
  cudaStream_t stream_ = nullptr, other_ = nullptr;
  float* x_ = nullptr;
};

TEST_F(OnHostStreams, WorkWaitsUntilSomebodyAsks) {
  EXPECT_TRUE(std::isnan(x_[0])) << "fresh memory";
  cudaMemsetAsync(x_, 0, 4 * sizeof(float), stream_);
  HS_LAUNCH(AddTo, 1, 4, 0, stream_, x_, 2.0f);
  EXPECT_TRUE(std::isnan(x_[0])) << "before the wait";
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(x_[3], 2.0f);
}

TEST_F(OnHostStreams, AnEventOrdersTwoStreamsAndNothingElseDoes) {
  for (const bool with_event : {false, true}) {
    float seen[4] = {};
    cudaMemset(x_, 0, 4 * sizeof(float));
    HS_LAUNCH(AddTo, 1, 4, 0, stream_, x_, 3.0f);
    cudaEvent_t event;
    cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    cudaEventRecord(event, stream_);
    HS_LAUNCH(AddTo, 1, 4, 0, stream_, x_, 10.0f);  // after the event: not waited for
    if (with_event) cudaStreamWaitEvent(other_, event, 0);
    cudaMemcpyAsync(seen, x_, sizeof(seen), cudaMemcpyDeviceToHost, other_);
    cudaStreamSynchronize(other_);
    EXPECT_EQ(seen[0], with_event ? 3.0f : 0.0f);
    EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
    cudaDeviceSynchronize();
    EXPECT_EQ(x_[0], 13.0f);
    cudaEventDestroy(event);
  }
}

TEST_F(OnHostStreams, AGraphReplaysLaunchesCopiesAndHostWorkWithTheirArguments) {
  cudaMemset(x_, 0, 4 * sizeof(float));
  float by = 1, seen[4] = {};
  int calls = 0;
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  HS_LAUNCH(AddTo, 1, 4, 0, stream_, x_, by);
  by = 100;
  HS_LAUNCH(AddTo, 1, 2, 0, stream_, x_, 0.5f);
  cudaMemcpyAsync(seen, x_, sizeof(seen), cudaMemcpyDeviceToHost, stream_);
  cudaLaunchHostFunc(
      stream_, [](void* count) { ++*static_cast<int*>(count); }, &calls);
  cudaGraph_t graph;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  EXPECT_EQ(calls, 0);
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(x_[0], 0.0f) << "captured, not run";
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
  cudaGraphDestroy(graph);
  for (int replay = 1; replay <= 3; ++replay) {
    cudaGraphLaunch(exec, stream_);
    cudaStreamSynchronize(stream_);
    EXPECT_EQ(seen[0], 1.5f * static_cast<float>(replay));
    EXPECT_EQ(seen[3], 1.0f * static_cast<float>(replay));
    EXPECT_EQ(calls, replay);
  }
  cudaGraphExecDestroy(exec);
}

TEST_F(OnHostStreams, EventsTellHowLongTheWorkBetweenThemTook) {
  cudaEvent_t start, end, untimed;
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming);
  cudaEventRecord(start, stream_);
  cudaLaunchHostFunc(
      stream_, [](void*) { ::usleep(3000); }, nullptr);
  cudaEventRecord(end, stream_);
  cudaEventRecord(untimed, stream_);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorNotReady);
  cudaStreamSynchronize(stream_);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 3);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
  for (cudaEvent_t event : {start, end, untimed}) cudaEventDestroy(event);
}

TEST_F(OnHostStreams, WaitingAndAllocatingSpoilACapture) {
  for (const bool allocate : {false, true}) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeGlobal), cudaSuccess);
    void* memory = nullptr;
    const cudaError_t error = allocate ? cudaMalloc(&memory, 16) : cudaStreamSynchronize(stream_);
    EXPECT_EQ(error, cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph;
    EXPECT_NE(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    EXPECT_EQ(graph, nullptr);
  }
}

TEST_F(OnHostStreams, AKernelsErrorSticksToItsStreamAndNotToOthers) {
  HS_LAUNCH(HalfAtBarrier, 1, 128, 0, stream_, nullptr);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMemsetAsync(x_, 0, 4, stream_), cudaErrorLaunchFailure);
  EXPECT_THAT(cudaGetErrorString(cudaStreamSynchronize(stream_)), HasSubstr("HalfAtBarrier"));
  EXPECT_EQ(cudaMemsetAsync(x_, 0, 4, other_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
}

TEST_F(OnHostStreams, FreeingWhatWasNotAllocatedIsAnError) {
  float not_ours = 0;
  EXPECT_EQ(cudaFree(&not_ours), cudaErrorInvalidValue);
}

}  // namespace
}  // namespace headsweep::cuda_on_host
