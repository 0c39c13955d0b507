#include "results/summary_json.h"

#include <nlohmann/json.hpp>

namespace headsweep {

nlohmann::json ToJson(const StageSummary& summary) {
  return {{"outcome", summary.outcome},
          {"digest", summary.digest},
          {"weights_checksum", summary.weights_checksum},
          {"parameters", summary.parameters},
          {"flops_per_step", summary.flops_per_step},
          {"valid_nll", summary.valid_nll},
          {"valid_perplexity", summary.valid_perplexity},
          {"test_nll", summary.test_nll},
          {"test_perplexity", summary.test_perplexity},
          {"train_seconds", summary.train_seconds},
          {"peak_memory_bytes", summary.peak_memory_bytes},
          {"summary_line", summary.summary_line}};
}

}  // namespace headsweep
