#include "trainer/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cluster/base/errors.h"

namespace headsweep {

double LearningRate(const TrainConfig& config, std::int64_t step) {
  const double rate = config.learning_rate, last = config.final_learning_rate;
  const double warmup = config.warmup_steps, s = static_cast<double>(step);
  if (config.schedule != "linear" && config.schedule != "cosine" && config.schedule != "inverse-sqrt") {
    throw ConfigError(fmt::format(
        "train.schedule = \"{}\": expected \"linear\", \"cosine\" or \"inverse-sqrt\"", config.schedule));
  }
  if (s <= warmup) return rate * s / warmup;
  if (config.schedule == "inverse-sqrt") return rate * std::sqrt(std::max(warmup, 1.0) / s);
  const double rest = std::max(1.0, config.steps - warmup);
  const double progress = std::min(1.0, (s - warmup) / rest);
  if (config.schedule == "linear") return rate * (1 - (1 - last) * progress);
  return rate * (last + (1 - last) * (1 + std::cos(std::numbers::pi * progress)) / 2);
}

}  // namespace headsweep
