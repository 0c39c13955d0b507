// How good an op could be: its formula, written once for any type of number, is evaluated
//   - in double precision: the truth;
//   - in float, values that a plain implementation would store between two ops rounded to the backend's
//   compute type: the naive
//     result of the same precision, whose error is the yardstick for ours.
// With Dual numbers the same formula gives exact and naive gradients (forward differentiation; Griewank &
// Walther 2008, chapter 3).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

namespace headsweep::testing {

// A value and its slope in one input.
template <class F>
struct Dual {
  F value = 0, slope = 0;
  Dual() = default;
  Dual(F v, F s = 0) : value(v), slope(s) {}  // numbers are duals without slope

  friend Dual operator+(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
  friend Dual operator-(Dual a, Dual b) { return {a.value - b.value, a.slope - b.slope}; }
  friend Dual operator-(Dual a) { return {-a.value, -a.slope}; }
  friend Dual operator*(Dual a, Dual b) { return {a.value * b.value, a.slope * b.value + a.value * b.slope}; }
  friend Dual operator/(Dual a, Dual b) {
    const F quotient = a.value / b.value;
    return {quotient, (a.slope - quotient * b.slope) / b.value};
  }
  Dual& operator+=(Dual b) { return *this = *this + b; }
  Dual& operator-=(Dual b) { return *this = *this - b; }
  friend bool operator<(Dual a, Dual b) { return a.value < b.value; }
};
template <class F>
Dual<F> exp(Dual<F> x) {
  const F e = std::exp(x.value);
  return {e, e * x.slope};
}
template <class F>
Dual<F> log(Dual<F> x) {
  return {std::log(x.value), x.slope / x.value};
}
template <class F>
Dual<F> sqrt(Dual<F> x) {
  const F root = std::sqrt(x.value);
  return {root, x.slope / (2 * root)};
}
template <class F>
Dual<F> tanh(Dual<F> x) {
  const F t = std::tanh(x.value);
  return {t, (1 - t * t) * x.slope};
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
inline Dual<double> Stored(Dual<double> x) { return x; }
inline Dual<float> Stored(Dual<float> x) { return {Stored(x.value), Stored(x.slope)}; }

// The values as numbers of another type.
template <class Real, class From>
std::vector<Real> As(const std::vector<From>& values) {
  std::vector<Real> result;
  result.reserve(values.size());
  if constexpr (std::is_same_v<Real, Dual<float>> || std::is_same_v<Real, float>) {
    for (const From value : values) result.push_back(Real(static_cast<float>(value)));
  } else {
    for (const From value : values) result.push_back(Real(static_cast<double>(value)));
  }
  return result;
}

// A constant in a formula's type.
template <class Real>
Real Constant(double value) {
  if constexpr (std::is_same_v<Real, Dual<float>> || std::is_same_v<Real, float>) {
    return Real(static_cast<float>(value));
  } else {
    return Real(value);
  }
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
