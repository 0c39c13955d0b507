// CUDA on the CPU: threads, barriers, warp operations, tensor-core fragments, asynchronous copies do what the
// programming guide and the PTX manual say, and mistakes show. Streams and graphs: on_host_streams_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "cluster/base/errors.h"
#include "kernels/cuda/numeric.h"
#include "kernels/cuda/portable.h"
#include "kernels/cuda/ptx.h"
#include "kernels/cuda/reduce.h"

namespace headsweep::cuda_on_host {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::HasSubstr;

class OnHost : public ::testing::Test {
 protected:
  void TearDown() override {
    SetThreadOrder({});
    cudaGetLastError();
  }
  static std::vector<ThreadOrder> Orders() {
    return {{ThreadOrder::kRising, 0}, {ThreadOrder::kFalling, 0}, {ThreadOrder::kShuffled, 7}};
  }
};

// --- Grids, barriers
// -------------------------------------------------------------------------------------------------

__global__ void NumberThreads(int* out) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] += static_cast<int>(1000 * block + thread);
}

TEST_F(OnHost, EveryThreadOfEveryBlockRunsOnce) {
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    std::vector<int> out(3 * 2 * 2 * 5 * 7 * 2, 0);
    HS_LAUNCH(NumberThreads, dim3(3, 2, 2), dim3(5, 7, 2), 0, nullptr, out.data());
    for (std::size_t i = 0; i < out.size(); ++i)
      ASSERT_EQ(out[i], static_cast<int>(1000 * (i / 70) + i % 70)) << ToString(order);
  }
}

__global__ void Rotate(int* out, bool barrier) {
  HS_SHARED(int, values, [256]);
  values[threadIdx.x] = static_cast<int>(threadIdx.x);
  if (barrier) __syncthreads();
  out[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}

int WrongAfterRotate(bool barrier) {
  std::vector<int> out(256);
  HS_LAUNCH(Rotate, 1, 256, 0, nullptr, out.data(), barrier);
  int wrong = 0;
  for (int i = 0; i < 256; ++i) wrong += out[static_cast<std::size_t>(i)] != (i + 1) % 256;
  return wrong;
}

TEST_F(OnHost, AMissingBarrierShowsAndAPresentOneWorksUnderEveryOrder) {
  int most = 0;
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    EXPECT_EQ(WrongAfterRotate(true), 0) << ToString(order);
    most = std::max(most, WrongAfterRotate(false));
  }
  EXPECT_GT(most, 100);
}

__global__ void OneSidedWrite(int* out, bool reversed) {
  HS_SHARED(int, value, [1]);
  const unsigned writer = reversed ? blockDim.x - 1 : 0;
  if (threadIdx.x == writer) value[0] = 42;
  out[threadIdx.x] = value[0];
}

TEST_F(OnHost, EachOfRisingAndFallingShowsTheRaceThatTheOtherHides) {
  const auto wrong = [](ThreadOrder::Kind kind, bool reversed) {
    SetThreadOrder({kind, 0});
    std::vector<int> out(64);
    HS_LAUNCH(OneSidedWrite, 1, 64, 0, nullptr, out.data(), reversed);
    return std::count_if(out.begin(), out.end(), [](int value) { return value != 42; });
  };
  EXPECT_EQ(wrong(ThreadOrder::kRising, false), 0);
  EXPECT_EQ(wrong(ThreadOrder::kFalling, false), 63);
  EXPECT_EQ(wrong(ThreadOrder::kRising, true), 63);
  EXPECT_EQ(wrong(ThreadOrder::kFalling, true), 0);
}

__global__ void ManyBarriers(int* out, int rounds) {
  HS_SHARED(int, sum, [2]);
  if (threadIdx.x < 2) sum[threadIdx.x] = 0;
  __syncthreads();
  for (int round = 0; round < rounds; ++round) {
    if (static_cast<int>(threadIdx.x) == round % static_cast<int>(blockDim.x))
      sum[(round + 1) % 2] = sum[round % 2] + 1;
    __syncthreads();
  }
  out[threadIdx.x] = sum[rounds % 2];
}

TEST_F(OnHost, BarriersKeepAllThreadsInStep) {
  for (const ThreadOrder order : Orders()) {
    for (const int threads : {1, 31, 33, 1024}) {
      SetThreadOrder(order);
      std::vector<int> out(static_cast<std::size_t>(threads));
      HS_LAUNCH(ManyBarriers, 1, threads, 0, nullptr, out.data(), 100);
      EXPECT_THAT(out, Each(100)) << threads << " threads, " << ToString(order);
    }
  }
}

__global__ void LeaveEarly(int* out) {
  if (threadIdx.x % 3 != 0) return;
  __syncthreads();
  out[threadIdx.x] = static_cast<int>(__ballot_sync(~0u, 1));
}

TEST_F(OnHost, ThreadsThatReturnedAreNotWaitedFor) {
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    std::vector<int> out(70, 0);
    HS_LAUNCH(LeaveEarly, 1, 70, 0, nullptr, out.data());
    EXPECT_EQ(static_cast<unsigned>(out[0]), 0x49249249u);
    EXPECT_EQ(static_cast<unsigned>(out[33]), 0x92492492u);
    EXPECT_EQ(static_cast<unsigned>(out[66]), 0x24u) << "of a warp of 6";
  }
}

// --- Misuse
// ----------------------------------------------------------------------------------------------------------

__global__ void HalfAtBarrier(float* out) {
  if (threadIdx.x < 100) {
    __syncthreads();
  } else {
    __syncwarp(0xFFFFFFFFu);
  }
  out[threadIdx.x] = 1;
}
__global__ void DifferentOperations(float* out) {
  out[threadIdx.x] = threadIdx.x < 7 ? __shfl_sync(~0u, 1.0f, 0) : static_cast<float>(__ballot_sync(~0u, 1));
}
__global__ void NotInOwnMask(int* out) { out[threadIdx.x] = __any_sync(0x0000FFFFu, 1); }
__global__ void WriteBeyondShared(int) {
  HS_DYNAMIC_SHARED(char, buffer);
  buffer[100] = 1;
}
__global__ void OddPack(float* x) { Pack<float>::Load(x + 1).Store(x); }

std::string FailureText() {
  const cudaError_t error = cudaGetLastError();
  EXPECT_EQ(error, cudaErrorLaunchFailure);
  return cudaGetErrorString(error);
}

TEST_F(OnHost, ABarrierThatSomeNeverReachIsReportedWithKernelBlockAndThreads) {
  std::vector<float> out(4 * 128);
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    HS_LAUNCH(HalfAtBarrier, 4, 128, 0, nullptr, out.data());
    EXPECT_THAT(FailureText(),
                AllOf(HasSubstr("HalfAtBarrier"), ContainsRegex("block \\([0-9]+, 0, 0\\) of 128 threads"),
                      HasSubstr("100 threads wait at __syncthreads for 28 others"),
                      HasSubstr("28 threads of warp 3 wait in __syncwarp")));
  }
  EXPECT_EQ(WrongAfterRotate(true), 0) << "after a failed block the executor goes on";
}

TEST_F(OnHost, OtherMisuseIsReported) {
  std::vector<float> floats(64);
  std::vector<int> ints(64);
  HS_LAUNCH(DifferentOperations, 1, 32, 0, nullptr, floats.data());
  EXPECT_THAT(FailureText(),
              AllOf(HasSubstr("DifferentOperations"), HasSubstr("__ballot_sync"), HasSubstr("__shfl_sync")));
  HS_LAUNCH(NotInOwnMask, 1, 32, 0, nullptr, ints.data());
  EXPECT_THAT(FailureText(), AllOf(HasSubstr("lane 16"), HasSubstr("0x0000ffff")));
  HS_LAUNCH(WriteBeyondShared, 1, 1, 100, nullptr, 0);
  EXPECT_THAT(FailureText(), AllOf(HasSubstr("WriteBeyondShared"), HasSubstr("beyond its 100 bytes")));
  alignas(16) float aligned[8] = {};
  HS_LAUNCH(OddPack, 1, 1, 0, nullptr, aligned);
  EXPECT_THAT(FailureText(), HasSubstr("not a multiple of 16"));
}

__global__ void Nothing() {}

TEST_F(OnHost, LaunchesBeyondTheDevicesLimitsAreRefused) {
  HS_LAUNCH(Nothing, 1, 1025, 0, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  HS_LAUNCH(Nothing, 0, 32, 0, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  HS_LAUNCH(Nothing, 1, 32, 48 * 1024 + 1, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(Nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 * 1024),
            cudaSuccess);
  HS_LAUNCH(Nothing, 1, 32, 100 * 1024, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(cudaFuncSetAttribute(Nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 228 * 1024),
            cudaErrorInvalidValue);
  cudaGetLastError();
}

__global__ void ReadUnwritten(float* out) {
  HS_SHARED(float, fixed, [4]);
  HS_DYNAMIC_SHARED(float, dynamic);
  out[2 * blockIdx.x] = fixed[0];
  out[2 * blockIdx.x + 1] = dynamic[3];
  fixed[0] = dynamic[3] = 1;
}

TEST_F(OnHost, SharedMemoryIsNaNWhenABlockBegins) {
  std::vector<float> out(6);
  HS_LAUNCH(ReadUnwritten, 3, 1, 16, nullptr, out.data());
  for (const float value : out) EXPECT_TRUE(std::isnan(value)) << value;
}

// --- Warp operations
// -------------------------------------------------------------------------------------------------

struct Shuffled {
  float plain, exclusive, down, up;
  int wide;
};
__global__ void Shuffles(Shuffled* out) {
  const auto lane = static_cast<float>(threadIdx.x % 32);
  Shuffled& mine = out[threadIdx.x];
  mine.plain = __shfl_sync(kAllLanes, lane, static_cast<int>(threadIdx.x * 7), 32);
  mine.exclusive = __shfl_xor_sync(kAllLanes, lane, 5);
  mine.down = __shfl_down_sync(kAllLanes, lane, 3, 8);
  mine.up = __shfl_up_sync(kAllLanes, lane, 3, 8);
  mine.wide = static_cast<int>(__shfl_sync(kAllLanes, static_cast<double>(lane) + 0.5, 3) * 2);
}

TEST_F(OnHost, ShufflesFollowTheProgrammingGuide) {
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    std::vector<Shuffled> out(64);
    HS_LAUNCH(Shuffles, 1, 64, 0, nullptr, out.data());
    for (unsigned i = 0; i < 64; ++i) {
      const unsigned lane = i % 32;
      EXPECT_EQ(out[i].plain, static_cast<float>(i * 7 % 32));
      EXPECT_EQ(out[i].exclusive, static_cast<float>(lane ^ 5));
      EXPECT_EQ(out[i].down, static_cast<float>(lane % 8 + 3 < 8 ? lane + 3 : lane));
      EXPECT_EQ(out[i].up, static_cast<float>(lane % 8 >= 3 ? lane - 3 : lane));
      EXPECT_EQ(out[i].wide, 7);
    }
  }
}

__global__ void Ballots(unsigned* out) {
  const unsigned votes = __ballot_sync(kAllLanes, threadIdx.x % 3 == 0);
  const int any = __any_sync(kAllLanes, threadIdx.x == 40), all = __all_sync(kAllLanes, threadIdx.x < 32);
  if (threadIdx.x % 32 == 0) {
    out[threadIdx.x / 32 * 3] = votes;
    out[threadIdx.x / 32 * 3 + 1] = static_cast<unsigned>(any);
    out[threadIdx.x / 32 * 3 + 2] = static_cast<unsigned>(all);
  }
}

TEST_F(OnHost, VotesCountTheLanesThatAreThereAlsoInAPartWarp) {
  std::vector<unsigned> out(9);
  HS_LAUNCH(Ballots, 1, 70, 0, nullptr, out.data());
  EXPECT_THAT(out, ::testing::ElementsAre(0x49249249u, 0u, 1u, 0x92492492u, 1u, 0u, 0x24u, 0u, 0u));
}

__global__ void DivergedGroups(int* out) {
  const unsigned lane = threadIdx.x;
  const unsigned mask = lane < 12 ? 0x00000FFFu : 0xFFFFF000u;
  int sum = 0;
  for (unsigned turn = 0; turn < (lane < 12 ? 2u : 5u); ++turn)
    sum += __popc(__ballot_sync(mask, lane % 2 == 0));
  out[lane] = sum;
}

TEST_F(OnHost, PartsOfAWarpMeetApart) {
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    std::vector<int> out(32);
    HS_LAUNCH(DivergedGroups, 1, 32, 0, nullptr, out.data());
    for (int lane = 0; lane < 32; ++lane) EXPECT_EQ(out[static_cast<std::size_t>(lane)], lane < 12 ? 12 : 50);
  }
}

__global__ void ShuffleFromNobody(float* out) { out[threadIdx.x] = __shfl_sync(kAllLanes, 1.0f, 20); }

TEST_F(OnHost, AShuffleFromALaneThatIsNotThereGivesNaN) {
  std::vector<float> out(8);
  HS_LAUNCH(ShuffleFromNobody, 1, 8, 0, nullptr, out.data());
  for (const float value : out) EXPECT_TRUE(std::isnan(value));
}

__global__ void Reductions(float* out) {
  const float x = static_cast<float>((threadIdx.x * 37) % 101) - 60;
  const float sum = BlockSum(x), most = BlockMax(x), again = BlockSum(x * 2);
  out[threadIdx.x] = sum * 1000 + most + again;
}

TEST_F(OnHost, BlockReductionsGiveEveryThreadTheResultUnderEveryOrder) {
  for (const unsigned threads : {32u, 96u, 256u, 1024u}) {
    float sum = 0, most = -1000;
    for (unsigned i = 0; i < threads; ++i) {
      sum += static_cast<float>((i * 37) % 101) - 60;
      most = std::max(most, static_cast<float>((i * 37) % 101) - 60);
    }
    for (const ThreadOrder order : Orders()) {
      SetThreadOrder(order);
      std::vector<float> out(threads);
      HS_LAUNCH(Reductions, 1, threads, 0, nullptr, out.data());
      EXPECT_THAT(out, Each(sum * 1000 + most + 2 * sum)) << threads << ", " << ToString(order);
    }
  }
}

// --- Numbers
// ---------------------------------------------------------------------------------------------------------

TEST(Numbers, Bf16RoundsToNearestEvenAndKeepsNaNAndInfinity) {
  const auto bits = [](float x) { return FromFloat<bf16>(x).bits; };
  EXPECT_EQ(bits(1.0f), 0x3F80);
  EXPECT_EQ(bits(FloatOfBits(0x3F808000)), 0x3F80) << "tie to even, down";
  EXPECT_EQ(bits(FloatOfBits(0x3F818000)), 0x3F82) << "tie to even, up";
  EXPECT_EQ(bits(FloatOfBits(0x3F808001)), 0x3F81);
  EXPECT_EQ(bits(FloatOfBits(0x7F7FFFFF)), 0x7F80) << "overflow";
  EXPECT_EQ(bits(-INFINITY), 0xFF80);
  EXPECT_EQ(bits(FloatOfBits(0x7F800001)), 0x7FFF) << "NaN whose upper half would be infinity";
  EXPECT_EQ(bits(-0.0f), 0x8000);
  EXPECT_EQ(PackBf16(1.0f, -2.0f), 0xC0003F80u);
  EXPECT_EQ(LowBf16(0xC0003F80u), 1.0f);
  EXPECT_EQ(HighBf16(0xC0003F80u), -2.0f);
}

// --- Tensor cores
// ----------------------------------------------------------------------------------------------------

// Fragments as in the PTX ISA manual, "Matrix Fragments for mma.m16n8k16": groupID = lane >> 2,
// threadID_in_group = lane % 4. A: element i of 8 has row = groupID for 0 <= i < 2 or 4 <= i < 6, else
// groupID + 8;
//    column = threadID_in_group * 2 + (i & 1), + 8 for i >= 4.
// B: element i of 4 has row = threadID_in_group * 2 + (i & 1), + 8 for i >= 2; column = groupID.
// C: element i of 4 has row = groupID for i < 2, else groupID + 8; column = threadID_in_group * 2 + (i & 1).
struct Matrices {
  float a[16][16], b[16][8], c[16][8];
};

__device__ int RowOfA(int lane, int i) { return (i < 2 || (i >= 4 && i < 6)) ? lane >> 2 : (lane >> 2) + 8; }
__device__ int ColumnOfA(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i >= 4 ? 8 : 0); }
__device__ int RowOfB(int lane, int i) { return lane % 4 * 2 + (i & 1) + (i >= 2 ? 8 : 0); }
__device__ int RowOfC(int lane, int i) { return i < 2 ? lane >> 2 : (lane >> 2) + 8; }
__device__ int ColumnOfC(int lane, int i) { return lane % 4 * 2 + (i & 1); }

__global__ void MultiplyByFragments(Matrices* m) {
  const int lane = static_cast<int>(threadIdx.x);
  std::uint32_t a[4], b[2];
  float d[4];
  for (int i = 0; i < 8; i += 2) {
    a[i / 2] = PackBf16(m->a[RowOfA(lane, i)][ColumnOfA(lane, i)],
                        m->a[RowOfA(lane, i + 1)][ColumnOfA(lane, i + 1)]);
  }
  for (int i = 0; i < 4; i += 2)
    b[i / 2] = PackBf16(m->b[RowOfB(lane, i)][lane >> 2], m->b[RowOfB(lane, i + 1)][lane >> 2]);
  for (int i = 0; i < 4; ++i) d[i] = m->c[RowOfC(lane, i)][ColumnOfC(lane, i)];
  MmaBf16(d, a, b);
  for (int i = 0; i < 4; ++i) m->c[RowOfC(lane, i)][ColumnOfC(lane, i)] = d[i];
}

TEST_F(OnHost, TensorCoreProductsFollowTheManualsFragments) {
  std::mt19937 random(1);
  std::uniform_int_distribution<int> small(-8, 8);  // products and sums are exact
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    Matrices m;
    for (auto& row : m.a)
      for (float& x : row) x = static_cast<float>(small(random));
    for (auto& row : m.b)
      for (float& x : row) x = static_cast<float>(small(random));
    for (auto& row : m.c)
      for (float& x : row) x = static_cast<float>(small(random));
    Matrices expected = m;
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 8; ++j)
        for (int k = 0; k < 16; ++k) expected.c[i][j] += m.a[i][k] * m.b[k][j];
    HS_LAUNCH(MultiplyByFragments, 1, 32, 0, nullptr, &m);
    for (int i = 0; i < 16; ++i)
      for (int j = 0; j < 8; ++j)
        ASSERT_EQ(m.c[i][j], expected.c[i][j]) << i << ", " << j << ", " << ToString(order);
  }
}

// "ldmatrix": with .x4, threads 8m..8m+7 give the addresses of rows 0..7 of matrix m; thread i receives, of
// each matrix, row i / 4, elements 2 (i % 4) and 2 (i % 4) + 1; with .trans, the same of the transposed
// matrix.
__global__ void LoadMatrices4And2(std::uint32_t* out) {
  HS_SHARED(std::uint16_t, tile, [64][40]);  // 80 bytes a row: a multiple of 16 that is no power of two
  for (unsigned i = threadIdx.x; i < 64 * 40; i += 32)
    tile[i / 40][i % 40] = static_cast<std::uint16_t>(i / 40 * 100 + i % 40);
  __syncwarp();
  const unsigned lane = threadIdx.x;
  const void* row = &tile[lane % 8 + 8 * (lane / 16)][8 * (lane / 8 % 2)];
  std::uint32_t four[4], turned[4], two[2], two_turned[2];
  LoadMatrix4(four, row);
  LoadMatrix4Transposed(turned, row);
  LoadMatrix2(two, row);
  LoadMatrix2Transposed(two_turned, row);
  for (unsigned m = 0; m < 4; ++m) {
    out[lane * 12 + m] = four[m];
    out[lane * 12 + 4 + m] = turned[m];
  }
  for (unsigned m = 0; m < 2; ++m) {
    out[lane * 12 + 8 + m] = two[m];
    out[lane * 12 + 10 + m] = two_turned[m];
  }
}

TEST_F(OnHost, MatrixLoadsFollowTheManual) {
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    std::vector<std::uint32_t> out(32 * 12);
    HS_LAUNCH(LoadMatrices4And2, 1, 32, 0, nullptr, out.data());
    const auto element = [](unsigned m, unsigned row, unsigned column) {
      return (row + 8 * (m / 2)) * 100 + 8 * (m % 2) + column;
    };
    for (unsigned lane = 0; lane < 32; ++lane) {
      for (unsigned m = 0; m < 4; ++m) {
        const unsigned row = lane / 4, pair = 2 * (lane % 4);
        const std::uint32_t plain = element(m, row, pair) | element(m, row, pair + 1) << 16;
        const std::uint32_t turned = element(m, pair, row) | element(m, pair + 1, row) << 16;
        ASSERT_EQ(out[lane * 12 + m], plain) << lane << ", " << m;
        ASSERT_EQ(out[lane * 12 + 4 + m], turned) << lane << ", " << m;
        if (m < 2) {
          ASSERT_EQ(out[lane * 12 + 8 + m], plain);
          ASSERT_EQ(out[lane * 12 + 10 + m], turned);
        }
      }
    }
  }
}

// --- Asynchronous copies
// ---------------------------------------------------------------------------------------------

enum class Waiting { kEnough, kOneTooFew, kNotAtAll };

__global__ void CopyThrough(const float* in, float* out, Waiting waiting) {
  HS_SHARED(float4, buffer, [2 * 32]);
  const unsigned i = threadIdx.x;
  CopyAsync16(&buffer[i], in + 4 * i, true);
  CopyAsyncCommit();
  CopyAsync16(&buffer[32 + i], in + 128 + 4 * i, i % 2 == 0);
  CopyAsyncCommit();
  if (waiting == Waiting::kEnough) CopyAsyncWait<0>();
  if (waiting == Waiting::kOneTooFew) CopyAsyncWait<1>();
  __syncthreads();
  for (unsigned k = 0; k < 2; ++k) {
    const float4 value = buffer[k * 32 + (i + 1) % 32];
    const float values[4] = {value.x, value.y, value.z, value.w};
    for (unsigned j = 0; j < 4; ++j) out[k * 128 + 4 * i + j] = values[j];
  }
}

TEST_F(OnHost, AsynchronousCopiesArriveAtTheWaitAndNotBefore) {
  alignas(16) float in[256];
  for (int i = 0; i < 256; ++i) in[i] = static_cast<float>(i + 1);
  for (const ThreadOrder order : Orders()) {
    SetThreadOrder(order);
    for (const Waiting waiting : {Waiting::kEnough, Waiting::kOneTooFew, Waiting::kNotAtAll}) {
      std::vector<float> out(256);
      HS_LAUNCH(CopyThrough, 1, 32, 0, nullptr, in, out.data(), waiting);
      for (std::size_t i = 0; i < 256; ++i) {
        const std::size_t from = i / 128 * 128 + (i % 128 + 4) % 128;
        const bool arrived = waiting == Waiting::kEnough || (waiting == Waiting::kOneTooFew && i < 128);
        if (!arrived) {
          EXPECT_TRUE(std::isnan(out[i])) << i;
        } else {
          EXPECT_EQ(out[i], from >= 128 && from / 4 % 2 == 1 ? 0.0f : in[from]) << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace headsweep::cuda_on_host
