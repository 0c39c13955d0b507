// What MakeBackend knows and refuses, and memory: alignment, zeros, copies.
#include "kernels/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "kernels/arena.h"
#include "kernels/cpu/cpu_backend.h"
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
  const std::string message = MessageOf<ConfigError>({"tpu", 1});
  EXPECT_THAT(message, HasSubstr("\"tpu\""));
  EXPECT_THAT(message, HasSubstr("cpu, cuda"));
}

TEST(MakeBackend, RefusesZeroThreads) { EXPECT_THAT(MessageOf<ConfigError>({"cpu", 0}), HasSubstr("not 0")); }

TEST(MakeBackend, NamesCudaWhenItIsCompiledOut) {
#ifdef HEADSWEEP_CUDA
  GTEST_SKIP() << "this build has CUDA";
#else
  EXPECT_THAT(MessageOf<Unsupported>({"cuda", 1}), HasSubstr("\"cuda\""));
#endif
}

TEST(MakeBackend, DescribesTheProcessorTheLibraryAndTheThreads) {
  const auto backend = MakeBackend({"cpu", 2});
  EXPECT_EQ(backend->name(), "cpu");
  EXPECT_THAT(backend->description(), HasSubstr("oneDNN"));
  EXPECT_THAT(backend->description(), HasSubstr("2 threads"));
}

TEST(CpuBackend, RefusesHeadSizesBeyondItsLimitByName) {
  CpuBackend backend(1);
  AttentionShape shape{1, 1, 1, 1, 513, 513, 513, false, nullptr, 1, {}};
  EXPECT_THROW(backend.AttentionForward(shape, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr),
               Unsupported);
}

// Fixed chunks of work: our own reductions do not depend on the number of threads (products through oneDNN
// may).
TEST(CpuBackend, ReductionsGiveTheSameBitsForAnyThreadCount) {
  std::vector<float> x;
  for (int i = 0; i < 100003; ++i) x.push_back(static_cast<float>(std::sin(i)) * 3.7f);
  float expected = 0, expected_sum = 0;
  CpuBackend(1).SumOfSquares(x.data(), 100003, &expected);
  CpuBackend(1).Sum(x.data(), 100003, &expected_sum);
  for (const int threads : {2, 3, 5}) {
    float result = 0, sum = 0;
    CpuBackend backend(threads);
    backend.SumOfSquares(x.data(), 100003, &result);
    backend.Sum(x.data(), 100003, &sum);
    EXPECT_EQ(result, expected) << threads << " threads";
    EXPECT_EQ(sum, expected_sum) << threads << " threads";
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
  std::vector<float> rounded = values;
  ExpectSameBits("elements", rounded, Read(In(rounded), shape().count));
}

TEST_P(MemoryTest, FillSetsEveryValueAndNoOther) {
  float* x = OutFloats(shape().count);
  backend().Fill(x, 2.5f, shape().count);
  ExpectClose("filled", Read(x, shape().count),
              std::vector<double>(static_cast<std::size_t>(shape().count), 2.5));
}

HEADSWEEP_OP_SUITE(MemoryTest, MemoryCase, {{0}, {1}, {33}, {130}, {1000003}});

}  // namespace
}  // namespace testing
}  // namespace headsweep
