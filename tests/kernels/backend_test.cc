// What MakeBackend knows and refuses, and memory: alignment, zeros, copies.
#include "kernels/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/philox.h"
#include "tests/kernels/op_test.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;

template <class Exception>
std::string MessageOf(const BackendOptions& options) {
  try {
    MakeBackend(options);
  } catch (const Exception& e) {
    return e.what();
  }
  return "nothing thrown";
}

TEST(MakeBackend, RefusesAnUnknownDeviceByNameAndListsTheKnownOnes) {
  const std::string message = MessageOf<ConfigError>({"tpu", 1, "float32"});
  EXPECT_THAT(message, HasSubstr("\"tpu\""));
  EXPECT_THAT(message, HasSubstr("cpu, cuda"));
}

TEST(MakeBackend, RefusesPrecisionsByName) {
  EXPECT_THAT(MessageOf<Unsupported>({"cpu", 1, "bfloat16"}), HasSubstr("\"bfloat16\" on device \"cpu\""));
  EXPECT_THAT(MessageOf<ConfigError>({"cuda-on-host", 1, "float16"}), HasSubstr("float32, bfloat16"));
}

TEST(MakeBackend, CudaOnHostComesInBothPrecisionsAndSaysSo) {
  const auto full = MakeBackend({"cuda-on-host", 1, "float32"}),
             half = MakeBackend({"cuda-on-host", 1, "bfloat16"});
  EXPECT_EQ(full->name(), "cuda-on-host");
  EXPECT_EQ(full->element_bytes(), 4u);
  EXPECT_EQ(half->element_bytes(), 2u);
  EXPECT_THAT(half->description(), HasSubstr("bfloat16 with float32 master weights"));
}

TEST(MakeBackend, RefusesZeroThreads) {
  EXPECT_THAT(MessageOf<ConfigError>({"cpu", 0, "float32"}), HasSubstr("not 0"));
}

// The op suite's cases of device "cuda" are left out where there is no card (backends.h): here that is
// visible.
TEST(OpSuite, RunsOnACard) {
  const testing::OpenedBackend card = testing::OpenBackend({"cuda_float", {"cuda", 1, "float32"}});
  if (card.backend == nullptr && card.required) FAIL() << card.why;
  if (card.backend == nullptr) GTEST_SKIP() << "no op ran on a card: " << card.why;
}

TEST(MakeBackend, NamesCudaWhenItIsCompiledOut) {
  if (ProbeGpus().cuda_build) GTEST_SKIP() << "this build has CUDA";
  EXPECT_THAT(MessageOf<Unsupported>({"cuda", 1, "float32"}), HasSubstr("\"cuda\""));
}

TEST(MakeBackend, WithoutAUsableGpuSaysWhyAndWhatToDo) {
  const GpuReport report = ProbeGpus();
  if (!report.cuda_build || !report.devices.empty())
    GTEST_SKIP() << "no CUDA in the build, or a GPU that can be used";
  const std::string message = MessageOf<DeviceError>({"cuda", 1, "float32"});
  EXPECT_THAT(message, HasSubstr(report.problem->message));
  EXPECT_THAT(message, HasSubstr(report.problem->remedy));
}

TEST(MakeBackend, DescribesTheProcessorTheLibraryAndTheThreads) {
  const auto backend = MakeBackend({"cpu", 2, "float32"});
  EXPECT_EQ(backend->name(), "cpu");
  EXPECT_THAT(backend->description(), HasSubstr("products in tiles of"));
  EXPECT_THAT(backend->description(), HasSubstr("2 threads"));
}

TEST(CpuBackend, RefusesHeadSizesBeyondItsLimitByName) {
  CpuBackend backend(1);
  AttentionShape shape{1, 1, 1, 1, 513, 513, 513, false, nullptr, 1, {}};
  EXPECT_THROW(backend.AttentionForward(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
               Unsupported);
}

// What several ops give for the same random inputs, all in one vector.
std::vector<float> ResultsOfOps(int threads) {
  constexpr int B = 3, T = 70, H = 3, D = 20, C = H * D, V = 11, R = B * T;
  CpuBackend backend(threads);
  std::uint64_t next = 0;
  std::vector<std::vector<float>> buffers;
  buffers.reserve(32);  // pointers into it stay good
  const auto floats = [&](std::int64_t count) {
    buffers.emplace_back();
    for (std::int64_t i = 0; i < count; ++i) buffers.back().push_back(RandomUniform(1, 2, next++) - 0.5f);
    return buffers.back().data();
  };
  const auto elements = [&](std::int64_t count) { return reinterpret_cast<Element*>(floats(count)); };
  AttentionShape shape{B, T, T, H, D, 3 * C, 3 * C, true, nullptr, 0.2f, {0.1f, 5, 6, 0}};
  Element *qkv = elements(R * 3 * C), *out = elements(R * C), *dout = elements(R * C),
          *dqkv = elements(R * 3 * C);
  float *lse = floats(B * H * T), *delta = floats(B * H * T);
  backend.AttentionForward(shape, qkv, backend.Offset(qkv, C), backend.Offset(qkv, 2 * C), nullptr, out,
                           nullptr, lse);
  backend.AttentionBackward(shape, qkv, backend.Offset(qkv, C), backend.Offset(qkv, 2 * C), nullptr, out, lse,
                            dout, dqkv, backend.Offset(dqkv, C), backend.Offset(dqkv, 2 * C), delta);
  Element *gamma = elements(C), *y = elements(R * C), *dx = elements(R * C);
  float *mean = floats(R), *rstd = floats(R), *d_gamma = floats(C), *d_beta = floats(C);
  backend.LayerNormForward(out, nullptr, nullptr, gamma, gamma, y, mean, rstd, R, C, 1e-5f);
  backend.LayerNormBackward(dout, out, gamma, mean, rstd, nullptr, dx, d_gamma, d_beta, R, C);
  float* d_bias = floats(C);
  Element *weight = elements(C * C), *product = elements(R * C);
  float* d_weight = floats(C * C);
  backend.LinearForward(y, weight, gamma, product, nullptr, R, C, C, Activation::kGelu);
  backend.LinearBackward(dx, y, weight, product, d_weight, d_bias, R, C, C, true);
  std::vector<std::int32_t> tokens;
  for (int r = 0; r < R; ++r) tokens.push_back(r * 7 % V);
  float *d_table = floats(V * C), *d_positions = floats(T * C);
  backend.EmbeddingBackward(tokens.data(), dx, d_table, d_positions, B, T, C, V, 1);
  float* sums = floats(2);
  backend.SumOfSquares(floats(100003), 100003, sums);
  backend.Sum(buffers.back().data(), 100003, sums + 1);
  std::vector<float> all;
  for (const std::vector<float>& buffer : buffers) all.insert(all.end(), buffer.begin(), buffer.end());
  return all;
}

TEST(CpuBackend, GivesTheSameBitsForAnyThreadCount) {
  const std::vector<float> expected = ResultsOfOps(1);
  for (const int threads : {2, 3, 5}) {
    const std::vector<float> results = ResultsOfOps(threads);
    EXPECT_EQ(std::memcmp(results.data(), expected.data(), expected.size() * sizeof(float)), 0)
        << threads << " threads";
  }
}

}  // namespace

namespace testing {
namespace {

struct MemoryCase {
  std::int64_t count;
};
std::ostream& operator<<(std::ostream& out, const MemoryCase& c) { return out << c.count << " values"; }

class MemoryTest : public OpTest<MemoryCase> {};

TEST_P(MemoryTest, AllocatedMemoryIsAlignedAndZero) {
  const std::int64_t count = shape().count;
  void* memory = backend().Allocate(static_cast<std::size_t>(count) * sizeof(float));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory) % 64, 0u);
  const std::vector<float> values = Read(static_cast<const float*>(memory), count);
  EXPECT_TRUE(std::all_of(values.begin(), values.end(), [](float v) { return v == 0; }));
  backend().Free(memory);
}

TEST_P(MemoryTest, CopiesGoInAndComeOutUnchanged) {
  const std::vector<float> values = Random(shape().count);
  ExpectSameBits("floats", values, Read(InFloats(values), shape().count));
  std::vector<std::int32_t> ints;
  for (std::int64_t i = 0; i < shape().count; ++i) ints.push_back(RandomInt(-1000000, 1000000));
  EXPECT_EQ(Read(InInts(ints), shape().count), ints);
  std::vector<float> elements = values, rounded;
  for (const float value : values) rounded.push_back(Stored(value));
  ExpectSameBits("elements", rounded, Read(In(elements), shape().count));
}

TEST_P(MemoryTest, FillSetsEveryValueAndNoOther) {
  float* x = OutFloats(shape().count);
  backend().Fill(x, 2.5f, shape().count);
  ExpectSameBits("filled", Read(x, shape().count),
                 std::vector<float>(static_cast<std::size_t>(shape().count), 2.5f));
}

HEADSWEEP_OP_SUITE(MemoryTest, MemoryCase, {{0}, {1}, {33}, {130}, {1000003}});

}  // namespace
}  // namespace testing
}  // namespace headsweep
