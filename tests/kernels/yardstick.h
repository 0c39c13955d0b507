// How good an op could be: its formula, written once for any type of number, is evaluated
//   - in double precision: the truth;
//   - in float, values that a plain implementation would store between two ops rounded to the backend's
//   compute type: the
//     naive result of the same precision, whose error is the yardstick for ours (OpTest::Measure).
// With Traced numbers the same formula gives gradients: exact ones, and those of a plain backward pass.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace headsweep::testing {

// How numbers came about: for each, of which two it was made, and its slope in both. One walk back gives the
// slope of the last in every input (reverse differentiation; Griewank & Walther 2008, chapter 3).
template <class F>
struct Trace {
  struct Step {
    std::uint32_t a, b;  // 0: none
    F slope_a, slope_b;
    bool stored;  // the gradient that arrives here is one that would be stored between two ops
  };
  std::vector<Step> steps{Step{}};

  std::uint32_t Add(std::uint32_t a, F slope_a, std::uint32_t b = 0, F slope_b = 0, bool stored = false) {
    if (a == 0 && b == 0) return 0;  // constants make constants
    steps.push_back({a, b, slope_a, slope_b, stored});
    return static_cast<std::uint32_t>(steps.size() - 1);
  }
  static Trace& Mine() {
    static Trace trace;
    return trace;
  }
};

// A number with a trace.
template <class F>
struct Traced {
  F value = 0;
  std::uint32_t step = 0;
  Traced() = default;
  Traced(F v, std::uint32_t s = 0) : value(v), step(s) {}  // numbers are constants

  friend Traced Made(F value, Traced a, F slope_a, Traced b = {}, F slope_b = 0) {
    return {value, Trace<F>::Mine().Add(a.step, slope_a, b.step, slope_b)};
  }
  friend Traced operator+(Traced a, Traced b) { return Made(a.value + b.value, a, 1, b, 1); }
  friend Traced operator-(Traced a, Traced b) { return Made(a.value - b.value, a, 1, b, -1); }
  friend Traced operator-(Traced a) { return Made(-a.value, a, -1); }
  friend Traced operator*(Traced a, Traced b) { return Made(a.value * b.value, a, b.value, b, a.value); }
  friend Traced operator/(Traced a, Traced b) {
    const F quotient = a.value / b.value;
    return Made(quotient, a, 1 / b.value, b, -quotient / b.value);
  }
  Traced& operator+=(Traced b) { return *this = *this + b; }
  Traced& operator-=(Traced b) { return *this = *this - b; }
  friend bool operator<(Traced a, Traced b) { return a.value < b.value; }
};
template <class F>
Traced<F> exp(Traced<F> x) {
  const F e = std::exp(x.value);
  return Made(e, x, e);
}
template <class F>
Traced<F> log(Traced<F> x) {
  return Made(std::log(x.value), x, 1 / x.value);
}
template <class F>
Traced<F> sqrt(Traced<F> x) {
  const F root = std::sqrt(x.value);
  return Made(root, x, 1 / (2 * root));
}
template <class F>
Traced<F> tanh(Traced<F> x) {
  const F t = std::tanh(x.value);
  return Made(t, x, 1 - t * t);
}

// Whether the backend under test stores bfloat16; set by the fixture.
inline bool naive_stores_bf16 = false;

inline float RoundedToBf16(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if ((bits & 0x7FFFFFFFu) <= 0x7F800000u) bits += 0x7FFFu + (bits >> 16 & 1u);
  bits &= 0xFFFF0000u;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

// What is left of a value that is written to an Element buffer between two ops.
inline double Stored(double x) { return x; }
inline float Stored(float x) { return naive_stores_bf16 ? RoundedToBf16(x) : x; }
inline Traced<double> Stored(Traced<double> x) { return x; }
inline Traced<float> Stored(Traced<float> x) {
  return {Stored(x.value), Trace<float>::Mine().Add(x.step, 1, 0, 0, true)};
}

// d loss / d x[i] for every i.
template <class F, class Loss>
std::vector<F> Slopes(const std::vector<float>& x, Loss loss) {
  auto& steps = Trace<F>::Mine().steps;
  steps.resize(1);
  std::vector<Traced<F>> inputs;
  for (const float value : x) {
    steps.push_back({});
    inputs.push_back({static_cast<F>(value), static_cast<std::uint32_t>(steps.size() - 1)});
  }
  const Traced<F> result = loss(inputs);
  std::vector<F> slopes(steps.size(), F{0});
  slopes[result.step] = 1;
  for (std::size_t i = steps.size() - 1; i > 0; --i) {
    const F slope = steps[i].stored ? static_cast<F>(Stored(slopes[i])) : slopes[i];
    slopes[steps[i].a] += steps[i].slope_a * slope;
    slopes[steps[i].b] += steps[i].slope_b * slope;
  }
  return {slopes.begin() + 1, slopes.begin() + 1 + static_cast<std::ptrdiff_t>(x.size())};
}

// The values as numbers of another type.
template <class Real, class From>
std::vector<Real> As(const std::vector<From>& values) {
  std::vector<Real> result;
  result.reserve(values.size());
  if constexpr (std::is_same_v<Real, Traced<float>> || std::is_same_v<Real, float>) {
    for (const From value : values) result.push_back(Real(static_cast<float>(value)));
  } else {
    for (const From value : values) result.push_back(Real(static_cast<double>(value)));
  }
  return result;
}

// A constant in a formula's type.
template <class Real>
Real Constant(double value) {
  if constexpr (std::is_same_v<Real, Traced<float>> || std::is_same_v<Real, float>) {
    return Real(static_cast<float>(value));
  } else {
    return Real(value);
  }
}

// What a number is, without how it came about.
inline double Value(double x) { return x; }
template <class F>
double Value(Traced<F> x) {
  return static_cast<double>(x.value);
}

// sum_i weights[i] * x[i]: the random loss whose slopes are gradients. An unweighted sum would hide wrong
// softmax gradients.
template <class Real>
Real WeightedSumOf(const std::vector<float>& weights, const std::vector<Real>& x) {
  Real sum = Constant<Real>(0);
  for (std::size_t i = 0; i < x.size(); ++i) sum += Constant<Real>(static_cast<double>(weights[i])) * x[i];
  return sum;
}

}  // namespace headsweep::testing
