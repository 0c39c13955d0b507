// exp and what is made of it, as branch-free scalar functions that compilers turn into vector code inside a
// loop (libm's would be called one value at a time). Accuracy is measured by
// tests/kernels/vector_math_test.cc. NaN in gives NaN out, always.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

namespace headsweep::cpu {

namespace internal {

// e^x for |x| small enough that 2^n is a normal number. x = n ln 2 + r with |r| <= ln 2 / 2; e^r by its
// Taylor polynomial of degree 7 (next term: 5e-9); 2^n through the exponent bits. ln 2 is taken off in two
// parts, the first of 12 bits, so that n times it is exact.
inline float ExpInRange(float x) {
  constexpr float kLog2E = 1.44269504088896341f, kLn2High = 0x1.62e4p-1f, kLn2Low = 1.42860682030941723e-6f;
  constexpr float kRound = 0x1.8p23f;  // adding it rounds to an integer, left in the low bits
  const float shifted = x * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (x - n * kLn2High) - n * kLn2Low;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127u) << 23);
}

}  // namespace internal

// e^x, relative error below 2e-7. Below -87.3 exactly 0 (no denormals), above 88.3 infinity.
inline float Exp(float x) {
  float y = x < -87.3f ? -87.3f : x;
  y = y > 88.7f ? 88.7f : y;
  return x < -87.3f ? 0.0f : internal::ExpInRange(y);
}

// The same for x <= 0 (up to rounding), a little faster: what a softmax needs. -infinity gives 0.
inline float ExpOfNonPositive(float x) {
  const float e = internal::ExpInRange(x);
  return x < -87.3f ? 0.0f : e;
}

inline constexpr float kGeluOuter = 0.797884560802865356f;  // sqrt(2/pi)
inline constexpr float kGeluInner = 0.044715f;

// Logistic function of 2u: (1 + tanh u) / 2, relative error below 4e-7.
inline float Sigmoid2(float u) { return 1.0f / (1.0f + Exp(-2.0f * u)); }

// tanh u, absolute error below 3e-7 (not relative: near 0 the difference cancels).
inline float Tanh(float u) { return 2.0f * Sigmoid2(u) - 1.0f; }

// GELU, absolute error below 3e-7 (1 + |x|): tanh form (Hendrycks & Gimpel 2016): x/2 (1 + tanh(sqrt(2/pi) (x
// + 0.044715 x^3))).
inline float Gelu(float x) {
  const float u = kGeluOuter * (x + kGeluInner * x * x * x);
  return x * Sigmoid2(u);
}

// Its derivative, absolute error below 3e-6. With s = Sigmoid2(u): s + x * 2 s (1 - s) u'.
inline float GeluDerivative(float x) {
  // Beyond |x| = 12 the result is 0 or 1 to the last bit; the clamp keeps infinity * 0 out of the product.
  float y = x < -12.0f ? -12.0f : x;
  y = y > 12.0f ? 12.0f : y;
  const float u = kGeluOuter * (y + kGeluInner * y * y * y);
  const float du = kGeluOuter * (1.0f + 3.0f * kGeluInner * y * y);
  const float s = Sigmoid2(u);
  return s + y * 2.0f * s * (1.0f - s) * du;
}

}  // namespace headsweep::cpu
