// What every op test needs: a backend by parameter, buffers with guards around them, random inputs, and the
// yardstick: errors beside those of the same formula evaluated naively (yardstick.h), also for gradients.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tests/kernels/backends.h"
#include "tests/kernels/yardstick.h"

namespace headsweep::testing {

// Seed of all random inputs: HEADSWEEP_TEST_SEED, or a fixed one. Printed with every failure.
inline std::uint64_t TestSeed() {
  const char* set = std::getenv("HEADSWEEP_TEST_SEED");
  return set != nullptr ? std::strtoull(set, nullptr, 10) : 20261130;
}

template <class Case>
using OpParam = std::tuple<BackendCase, Case>;

// Fixture of one op's suite. Case: a struct of sizes with operator<<.
template <class Case>
class OpTest : public ::testing::TestWithParam<OpParam<Case>> {
 protected:
  static constexpr std::int64_t kGuard = 64;       // values before and after each buffer
  static constexpr float kGuardValue = -12288.0f;  // exact in bfloat16 too
  static constexpr std::int32_t kGuardInt = 0x5EEDBEEF;

  void SetUp() override {
    OpenedBackend opened = OpenBackend(std::get<0>(this->GetParam()));
    if (opened.backend == nullptr && opened.required) FAIL() << opened.why;
    if (opened.backend == nullptr) GTEST_SKIP() << opened.why;
    backend_ = std::move(opened.backend);
    naive_stores_bf16 = backend_->element_bytes() == 2;
  }

  void TearDown() override { Release(); }

  Backend& backend() { return *backend_; }
  const Case& shape() const { return std::get<1>(this->GetParam()); }

  std::vector<float> Random(std::int64_t count, double deviation = 1, double mean = 0) {
    std::normal_distribution<double> normal(mean, deviation);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = static_cast<float>(normal(random_));
    return values;
  }
  std::int32_t RandomInt(std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random_);
  }

  // An Element buffer that holds `values`, which are rounded to the compute type as the backend does.
  Element* In(std::vector<float>& values) {
    Element* p = NewElements(static_cast<std::int64_t>(values.size()));
    backend().CopyIn(p, values.data(), static_cast<std::int64_t>(values.size()));
    values = Read(p, static_cast<std::int64_t>(values.size()));
    return p;
  }
  // An Element buffer to be written: full of NaN, so that a value never written shows.
  Element* Out(std::int64_t count) {
    std::vector<float> nan(static_cast<std::size_t>(count), std::nanf(""));
    return In(nan);
  }
  float* InFloats(const std::vector<float>& values) {
    float* p = NewFloats(static_cast<std::int64_t>(values.size()));
    backend().CopyIn(p, values.data(), static_cast<std::int64_t>(values.size()));
    return p;
  }
  float* OutFloats(std::int64_t count) {
    return InFloats(std::vector<float>(static_cast<std::size_t>(count), std::nanf("")));
  }
  std::int32_t* InInts(const std::vector<std::int32_t>& values) {
    const auto count = static_cast<std::int64_t>(values.size());
    auto* base = static_cast<std::int32_t*>(New(Block::kInt, count, sizeof(std::int32_t)));
    const std::vector<std::int32_t> guard(kGuard, kGuardInt);
    backend().CopyIn(base, guard.data(), kGuard);
    backend().CopyIn(base + kGuard, values.data(), count);
    backend().CopyIn(base + kGuard + count, guard.data(), kGuard);
    return base + kGuard;
  }
  std::int32_t* OutInts(std::int64_t count) {
    return InInts(std::vector<std::int32_t>(static_cast<std::size_t>(count), -777));
  }

  std::vector<float> Read(const Element* p, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    backend().CopyOut(values.data(), p, count);
    return values;
  }
  std::vector<float> Read(const float* p, std::int64_t count) {
    std::vector<float> values(static_cast<std::size_t>(count));
    backend().CopyOut(values.data(), p, count);
    return values;
  }
  std::vector<std::int32_t> Read(const std::int32_t* p, std::int64_t count) {
    std::vector<std::int32_t> values(static_cast<std::size_t>(count));
    backend().CopyOut(values.data(), p, count);
    return values;
  }

  // The yardstick of the suite, for every op, backend and case: the error of a tensor (root of the mean
  // square over its values) is at most twice (gradients: three times) that of the same precision when the
  // formula is written down naively (yardstick.h; the rule is FlashAttention's, Dao 2023, tests). Nothing is
  // added to that: no floor, no unit of roundings. And no value stands out: the largest error is at most
  // eight times the naive one's largest.
  //
  // The naive error of a few numbers is luck, and may be none at all. So Measure() draws numbers anew and
  // compares again until every tensor has had kEnough values; then it is a property of the precision. Mean
  // squares are, while the largest of heavy tails (of a softmax: one row errs much more than the others) may
  // still differ threefold between two equally good evaluations; it is there to catch the single wrong value.
  // What the naive evaluation does without any error over all that (a copy, a gradient that is 0) has to be
  // exact here too.
  static constexpr double kForward = 2, kGradient = 3, kOutlier = 8;
  static constexpr std::int64_t kEnough = 256;

  // Runs `round`, which draws numbers and calls ExpectAsGood() and ExpectGradient(), as often as that takes.
  template <class Round>
  void Measure(const Round& round) {
    const auto enough = [&] {
      return std::all_of(measured_.begin(), measured_.end(), [](const auto& entry) {
        return entry.second.values == 0 || entry.second.values >= kEnough;
      });
    };
    do {
      round();
      if (::testing::Test::HasFailure()) return;
      Release();
    } while (!enough());
    for (const auto& [what, measured] : measured_) {
      const double error = measured.error.MeanRoot(measured.values),
                   naive = measured.naive.MeanRoot(measured.values);
      EXPECT_TRUE(error <= measured.factor * naive)
          << what << ": error " << error << " > " << measured.factor << " times the naive " << naive
          << ", of " << measured.values << " values, at worst " << measured.where << "; seed " << TestSeed();
      EXPECT_TRUE(measured.error.largest <= kOutlier * measured.naive.largest)
          << what << ": largest error " << measured.error.largest << " > " << kOutlier << " times the naive "
          << measured.naive.largest << ", of " << measured.values << " values, at " << measured.where
          << "; seed " << TestSeed();
    }
  }

  // In a round of Measure(): one more piece of the tensor `what`.
  void ExpectAsGood(const std::string& what, const std::vector<float>& actual,
                    const std::vector<double>& truth, const std::vector<float>& naive,
                    double factor = kForward) {
    ASSERT_EQ(actual.size(), truth.size()) << what;
    ASSERT_EQ(actual.size(), naive.size()) << what;
    Measured& measured = measured_[what];
    measured.factor = factor;
    measured.values += static_cast<std::int64_t>(actual.size());
    for (std::size_t i = 0; i < actual.size(); ++i) {
      measured.naive.Add(Error(naive[i], truth[i]));
      if (!measured.error.Add(Error(actual[i], truth[i]))) continue;
      measured.where = fmt::format("[{}] of {}: {}, expected {}", i, actual.size(), actual[i], truth[i]);
      ASSERT_FALSE(std::isnan(measured.error.largest)) << what << measured.where << "; seed " << TestSeed();
    }
  }

  // The same for gradient[i] = before[i] + slope of loss in x[i], for every i. loss: takes a vector of
  // numbers of some type (yardstick.h), gives one number of that type. before: what a gradient in floats was
  // added to; empty: it was written, to Elements.
  template <class Loss>
  void ExpectGradient(const std::string& what, const std::vector<float>& gradient,
                      const std::vector<float>& x, Loss loss, const std::vector<float>& before = {}) {
    ASSERT_EQ(gradient.size(), x.size()) << what;
    std::vector<double> truth = Slopes<double>(x, loss);
    std::vector<float> naive = Slopes<float>(x, loss);
    if (!measured_.contains(what)) ExpectSlopesOf(what, x, truth, loss);
    for (std::size_t i = 0; i < x.size(); ++i) {
      naive[i] = before.empty() ? Stored(naive[i]) : before[i] + naive[i];
      if (!before.empty()) truth[i] += before[i];
    }
    ExpectAsGood(what, gradient, truth, naive, kGradient);
  }

  void ExpectSameBits(const std::string& what, const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
          << what << "[" << i << "]: " << a[i] << " and then " << b[i] << "; seed " << TestSeed();
    }
  }

 private:
  // The truth itself: weighted by random numbers, slopes add up to the loss's difference along these.
  template <class Loss>
  static void ExpectSlopesOf(const std::string& what, const std::vector<float>& x, const std::vector<double>& slopes,
                             Loss loss) {
    constexpr double kStep = 1e-5;
    std::mt19937_64 random(TestSeed());  // its own: the numbers of the test stay what they are
    std::normal_distribution<double> normal;
    std::vector<double> above, below;
    double expected = 0, size = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double weight = normal(random);
      above.push_back(static_cast<double>(x[i]) + kStep * weight);
      below.push_back(static_cast<double>(x[i]) - kStep * weight);
      expected += slopes[i] * weight;
      size += std::abs(slopes[i] * weight);
    }
    const double difference = (loss(above) - loss(below)) / (2 * kStep);
    EXPECT_TRUE(std::abs(difference - expected) <= 1e-4 * size + 1e-6)
        << what << ": the true gradient adds up to " << expected << ", the loss's difference is " << difference << "; seed "
        << TestSeed();
  }

  struct Block {
    enum Kind { kElement, kFloat, kInt };
    Kind kind;
    void* memory;
    std::int64_t count;
  };

  struct Errors {
    double squares = 0, largest = 0;
    bool Add(double error) {  // whether it is the largest, which a NaN is
      squares += error * error;
      if (error <= largest) return false;
      largest = error;
      return true;
    }
    double MeanRoot(std::int64_t count) const {
      return count == 0 ? 0 : std::sqrt(squares / static_cast<double>(count));
    }
  };
  struct Measured {
    std::int64_t values = 0;
    double factor = 0;
    Errors error, naive;
    std::string where;  // the largest error is
  };

  static double Error(double actual, double truth) {
    return actual == truth ? 0 : std::abs(actual - truth);  // infinities are equal, NaN is equal to nothing
  }

  // Checks the guards of all buffers and frees them.
  void Release() {
    for (const Block& block : blocks_) {
      CheckGuards(block);
      backend_->Free(block.memory);
    }
    blocks_.clear();
  }

  void* New(typename Block::Kind kind, std::int64_t count, std::size_t size) {
    void* memory = backend().Allocate(static_cast<std::size_t>(count + 2 * kGuard) * size);
    blocks_.push_back({kind, memory, count});
    return memory;
  }
  Element* NewElements(std::int64_t count) {
    auto* base = static_cast<Element*>(New(Block::kElement, count, backend().element_bytes()));
    const std::vector<float> guard(kGuard, kGuardValue);
    backend().CopyIn(base, guard.data(), kGuard);
    backend().CopyIn(backend().Offset(base, kGuard + count), guard.data(), kGuard);
    return backend().Offset(base, kGuard);
  }
  float* NewFloats(std::int64_t count) {
    auto* base = static_cast<float*>(New(Block::kFloat, count, sizeof(float)));
    const std::vector<float> guard(kGuard, kGuardValue);
    backend().CopyIn(base, guard.data(), kGuard);
    backend().CopyIn(base + kGuard + count, guard.data(), kGuard);
    return base + kGuard;
  }

  template <class Value>
  void ExpectGuard(const std::vector<Value>& before, const std::vector<Value>& after, Value guard) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      ASSERT_EQ(before[i], guard) << "written before the start of a buffer, " << before.size() - i
                                  << " values";
      ASSERT_EQ(after[i], guard) << "written beyond the end of a buffer, " << i << " values";
    }
  }
  void CheckGuards(const Block& block) {
    switch (block.kind) {
      case Block::kElement: {
        const auto* base = static_cast<const Element*>(block.memory);
        ExpectGuard(Read(base, kGuard), Read(backend().Offset(base, kGuard + block.count), kGuard),
                    kGuardValue);
        break;
      }
      case Block::kFloat: {
        const auto* base = static_cast<const float*>(block.memory);
        ExpectGuard(Read(base, kGuard), Read(base + kGuard + block.count, kGuard), kGuardValue);
        break;
      }
      case Block::kInt: {
        const auto* base = static_cast<const std::int32_t*>(block.memory);
        ExpectGuard(Read(base, kGuard), Read(base + kGuard + block.count, kGuard), kGuardInt);
        break;
      }
    }
  }

  std::unique_ptr<Backend> backend_;
  std::vector<Block> blocks_;
  std::map<std::string, Measured> measured_;  // tensors of this test
  std::mt19937_64 random_{TestSeed()};
};

inline std::vector<double> ToDouble(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

template <class Case>
std::string OpTestName(const ::testing::TestParamInfo<OpParam<Case>>& info) {
  return std::get<0>(info.param).name + "_" + std::to_string(info.index);
}

}  // namespace headsweep::testing

// Runs a suite with the given cases (a braced list of Case) on every backend.
#define HEADSWEEP_OP_SUITE(Suite, Case, ...) HEADSWEEP_OP_SUITE_AS(Ops, Suite, Case, __VA_ARGS__)
#define HEADSWEEP_OP_SUITE_AS(Prefix, Suite, Case, ...)                                              \
  INSTANTIATE_TEST_SUITE_P(Prefix, Suite,                                                            \
                           ::testing::Combine(::testing::ValuesIn(::headsweep::testing::Backends()), \
                                              ::testing::ValuesIn(std::vector<Case> __VA_ARGS__)),   \
                           ::headsweep::testing::OpTestName<Case>)
