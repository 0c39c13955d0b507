#include "results/statistics.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>

#include "cluster/base/errors.h"

namespace headsweep {

Estimate MeanWithInterval(std::span<const double> values, double confidence) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  Estimate estimate{.n = 0, .mean = kNaN, .deviation = kNaN, .half_width = kNaN};
  double sum = 0;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    sum += value;
    ++estimate.n;
  }
  if (estimate.n == 0) return estimate;
  estimate.mean = sum / estimate.n;
  if (estimate.n == 1) return estimate;
  double squares = 0;
  for (const double value : values) {
    if (std::isfinite(value)) squares += (value - estimate.mean) * (value - estimate.mean);
  }
  estimate.deviation = std::sqrt(squares / (estimate.n - 1));
  estimate.half_width =
      StudentQuantile(0.5 + confidence / 2, estimate.n - 1) * estimate.deviation / std::sqrt(estimate.n);
  return estimate;
}

double StudentQuantile(double p, double degrees) {
  HEADSWEEP_CHECK(p > 0 && p < 1 && degrees > 0, "quantile {} of t with {} degrees of freedom", p, degrees);
  return boost::math::quantile(boost::math::students_t(degrees), p);
}

}  // namespace headsweep
