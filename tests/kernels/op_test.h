// What every op test needs: a backend by parameter, buffers with guards around them, random inputs,
// comparison with formulas in double precision and with what those give naively (yardstick.h), also for
// gradients.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
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

  void TearDown() override {
    for (const Block& block : blocks_) {
      CheckGuards(block);
      backend_->Free(block.memory);
    }
  }

  Backend& backend() { return *backend_; }
  const Case& shape() const { return std::get<1>(this->GetParam()); }
  double tolerance() const { return std::get<0>(this->GetParam()).tolerance; }

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

  // Where a result is kept: Element buffers round to the compute type, floats do not.
  enum class Kept { kElements, kFloats };
  // What a value is the sum of: so many terms, the largest of this size (where they cancel, else 0).
  struct Sum {
    std::int64_t terms = 1;
    double size = 0;
  };
  // The yardstick of the suite: the largest error is at most `factor` times that of the naive evaluation.
  // Errors are not told apart below one rounding of the result and, in float32, the square root of as many
  // roundings as there are terms (Higham & Mary 2019): the naive one may have been lucky.
  static constexpr double kForward = 2, kGradient = 3;
  void ExpectAsGood(const std::string& what, const std::vector<float>& actual,
                    const std::vector<double>& truth, const std::vector<float>& naive,
                    Kept kept = Kept::kElements, double factor = kForward, Sum sum = {}) {
    ASSERT_EQ(actual.size(), truth.size()) << what;
    ASSERT_EQ(actual.size(), naive.size()) << what;
    if (actual.empty()) return;
    double worst = -1, naive_worst = 0, largest = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      largest = std::max(largest, std::abs(truth[i]));
      naive_worst = std::max(naive_worst, std::abs(naive[i] - truth[i]));
      const double error = std::abs(actual[i] - truth[i]);
      if (!(error <= worst)) {
        worst = error;
        at = i;
        if (std::isnan(error)) break;
      }
    }
    const double rounding = kept == Kept::kElements && backend().element_bytes() == 2 ? 0x1p-9 : 0x1p-24;
    const double floor =
        (rounding + std::sqrt(static_cast<double>(sum.terms)) * 0x1p-24) * std::max(largest, sum.size);
    const double allowed = factor * std::max(naive_worst, floor);
    EXPECT_TRUE(worst <= allowed) << what << "[" << at << "] of " << actual.size() << ": " << actual[at]
                                  << ", expected " << truth[at] << "; error " << worst << " > " << factor
                                  << " times the naive " << naive_worst << "; seed " << TestSeed();
  }

  // Compares gradient[i] with the exact slope of loss in x[i], and its error with that of the naive slope,
  // for up to `samples` random i. loss: takes a vector of numbers of some type (yardstick.h), gives one
  // number of that type. before: what the gradient was added to, or empty.
  template <class Loss>
  void ExpectGradient(const std::string& what, const std::vector<float>& gradient,
                      const std::vector<float>& x, Loss loss, Kept kept = Kept::kElements,
                      const std::vector<float>& before = {}, Sum sum = {}, int samples = 12) {
    ASSERT_EQ(gradient.size(), x.size()) << what;
    if (x.empty()) return;
    std::vector<float> actual, naive;
    std::vector<double> truth;
    std::vector<Dual<double>> exact_x = As<Dual<double>>(x);
    std::vector<Dual<float>> naive_x = As<Dual<float>>(x);
    std::string places;
    for (int sample = 0; sample < samples; ++sample) {
      const auto i = static_cast<std::size_t>(RandomInt(0, static_cast<std::int32_t>(x.size()) - 1));
      exact_x[i].slope = 1;
      naive_x[i].slope = 1;
      actual.push_back(gradient[i]);
      const float start = before.empty() ? 0.0f : before[i];
      truth.push_back(start + loss(exact_x).slope);
      const float slope = start + loss(naive_x).slope;
      naive.push_back(kept == Kept::kElements ? Stored(slope) : slope);
      exact_x[i].slope = 0;
      naive_x[i].slope = 0;
      places += (sample == 0 ? "" : " ") + std::to_string(i);
    }
    SCOPED_TRACE("sampled indices: " + places);
    ExpectAsGood(what + " slope", actual, truth, naive, kept, kGradient, sum);
  }

  // |actual - expected| <= tolerance * (scale + |expected|) everywhere. scale: size of the terms that were
  // added up, where cancellation is expected. Prints the worst place.
  void ExpectClose(const std::string& what, const std::vector<float>& actual,
                   const std::vector<double>& expected, double scale = 1) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    double worst = -1;
    std::size_t at = 0;
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const double error = Error(actual[i], expected[i], scale);
      if (!(error <= worst)) {
        worst = error;
        at = i;
        if (std::isnan(error)) break;
      }
    }
    if (actual.empty()) return;
    EXPECT_TRUE(worst <= tolerance())
        << what << "[" << at << "] of " << actual.size() << ": " << actual[at] << ", expected "
        << expected[at] << "; error " << worst << " > " << tolerance() << "; seed " << TestSeed();
  }

  // Compares gradient[i] with the slope of loss in x[i] for up to `samples` random i.
  void ExpectSlopes(const std::string& what, const std::vector<float>& gradient, std::vector<double>& x,
                    const std::function<double()>& loss, double scale = 1, int samples = 24) {
    ASSERT_EQ(gradient.size(), x.size()) << what;
    if (x.empty()) return;
    std::vector<float> actual;
    std::vector<double> expected;
    std::string places;
    for (int sample = 0; sample < samples; ++sample) {
      const auto i = static_cast<std::size_t>(RandomInt(0, static_cast<std::int32_t>(x.size()) - 1));
      constexpr double kStep = 1e-4;
      const double before = x[i];
      x[i] = before + kStep;
      const double above = loss();
      x[i] = before - kStep;
      const double below = loss();
      x[i] = before;
      actual.push_back(gradient[i]);
      expected.push_back((above - below) / (2 * kStep));
      places += (sample == 0 ? "" : " ") + std::to_string(i);
    }
    SCOPED_TRACE("sampled indices: " + places);
    ExpectClose(what + " slope", actual, expected, scale);
  }

  void ExpectSameBits(const std::string& what, const std::vector<float>& a, const std::vector<float>& b) {
    ASSERT_EQ(a.size(), b.size()) << what;
    for (std::size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(std::memcmp(&a[i], &b[i], sizeof(float)), 0)
          << what << "[" << i << "]: " << a[i] << " and then " << b[i] << "; seed " << TestSeed();
    }
  }

 private:
  struct Block {
    enum Kind { kElement, kFloat, kInt };
    Kind kind;
    void* memory;
    std::int64_t count;
  };

  static double Error(double actual, double expected, double scale) {
    if (std::isinf(expected)) return actual == expected ? 0 : std::nan("");
    return std::abs(actual - expected) / (scale + std::abs(expected));
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
  std::mt19937_64 random_{TestSeed()};
};

inline std::vector<double> ToDouble(const std::vector<float>& values) {
  return {values.begin(), values.end()};
}

// sum_i weights[i] * x[i]: the random loss whose slopes are gradients. An unweighted sum would hide wrong
// softmax gradients.
inline double WeightedSum(const std::vector<float>& weights, const std::vector<double>& x) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(weights[i]) * x[i];
  return sum;
}

template <class Case>
std::string OpTestName(const ::testing::TestParamInfo<OpParam<Case>>& info) {
  return std::get<0>(info.param).name + "_" + std::to_string(info.index);
}

}  // namespace headsweep::testing

// Runs a suite with the given cases (a braced list of Case) on the given backends, or on every backend.
#define HEADSWEEP_OP_SUITE_ON(backends, Suite, Case, ...)                                                    \
  INSTANTIATE_TEST_SUITE_P(                                                                                  \
      Ops, Suite,                                                                                            \
      ::testing::Combine(::testing::ValuesIn(backends), ::testing::ValuesIn(std::vector<Case> __VA_ARGS__)), \
      ::headsweep::testing::OpTestName<Case>)
#define HEADSWEEP_OP_SUITE(Suite, Case, ...) \
  HEADSWEEP_OP_SUITE_ON(::headsweep::testing::Backends(), Suite, Case, __VA_ARGS__)
