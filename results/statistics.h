// Means with confidence intervals over seeds. Pure functions.
#pragma once

#include <span>

namespace headsweep {

struct Estimate {
  int n = 0;             // finite values used
  double mean = 0;       // NaN if n = 0
  double deviation = 0;  // sample standard deviation; NaN if n < 2
  double half_width =
      0;  // mean ± half_width is the confidence interval; NaN if n < 2: one value tells nothing about spread
  bool has_interval() const { return n >= 2; }
  double low() const { return mean - half_width; }
  double high() const { return mean + half_width; }
};

// Student-t interval of the mean: half_width = t(1 - (1 - confidence) / 2, n - 1) * deviation / sqrt(n).
// Values that are not finite are left out. Two passes, so that a large mean with a small spread keeps its
// digits.
Estimate MeanWithInterval(std::span<const double> values, double confidence = 0.95);

// The p-quantile of Student's t distribution; 0 < p < 1, degrees > 0.
double StudentQuantile(double p, double degrees);

}  // namespace headsweep
