#include "tests/results/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <tuple>

namespace headsweep::testing {
namespace {

constexpr double kPiecesPerWord = 1.4;

double PerWord(double nll) { return std::exp(nll * kPiecesPerWord); }

// Quality as the literature finds it: better with more heads while each head is large enough, worse when it
// is starved.
double FinalNll(const SyntheticModel& m) {
  const double heads_help = 0.22 * std::exp(-0.45 * m.heads);
  const double starved = 0.5 / m.head_size;
  std::mt19937_64 random(m.seed * 7919 + static_cast<std::uint64_t>(m.heads * 131 + m.head_size));
  std::normal_distribution<double> noise(0, 0.008);
  return 3.05 + heads_help + starved + noise(random);
}

double Importance(const SyntheticModel& m, int layer, int head, double progress) {
  std::mt19937_64 random(static_cast<std::uint64_t>(layer * 1000 + head) + m.seed * 17);
  const double strength = std::exponential_distribution<double>(1.0)(random);
  return 0.02 + progress * 0.05 * strength;
}

}  // namespace

StageTables MakeTrainTables(const SyntheticModel& m, int steps, int evaluate_every) {
  StageTables tables;
  std::mt19937_64 random(m.seed);
  std::normal_distribution<double> noise(0, 0.03);
  const double last = FinalNll(m);
  const auto nll_at = [&](int step) { return last + 4.2 * std::exp(-5.0 * step / steps); };
  for (int step = 1; step <= steps; ++step) {
    StepRow row;
    row.step = step;
    row.loss = nll_at(step) + noise(random);
    row.learning_rate = 1e-3 * std::min(1.0, step / 10.0);
    row.gradient_norm = 0.5 + std::abs(noise(random));
    row.targets = 2048;
    row.seconds = 0.1;
    row.tokens_per_second = 20480;
    tables.steps.push_back(row);
    if (step % evaluate_every != 0) continue;
    for (const char* split : {"valid", "test"}) {
      if (split[0] == 't' && step != steps) continue;
      const double nll = nll_at(step) + (split[0] == 't' ? 0.01 : 0);
      tables.evaluations.push_back({step, split, nll, std::exp(nll), PerWord(nll), 10000, 0.5});
    }
    for (int layer = 0; layer < m.layers; ++layer) {
      double sum = 0;
      for (int head = 0; head < m.heads; ++head)
        sum += std::pow(Importance(m, layer, head, 1.0 * step / steps), 2);
      for (int head = 0; head < m.heads; ++head) {
        const double score = Importance(m, layer, head, 1.0 * step / steps);
        tables.importance.push_back(
            {step, layer, "self", head, score, 2 * score, score / std::sqrt(sum), 1.0 + score});
      }
    }
  }
  return tables;
}

StageTables MakePruneTables(const SyntheticModel& m, const std::string& order, std::uint64_t order_seed) {
  StageTables tables;
  const double base = FinalNll(m) + 0.01;
  const double harm = order == "importance" ? 0.3
                      : order == "ablation" ? 0.5
                      : order == "reversed" ? 2.4
                                            : 1.2;
  const int total = m.layers * m.heads;
  std::vector<std::tuple<double, int, int>> sorted;
  for (int layer = 0; layer < m.layers; ++layer) {
    for (int head = 0; head < m.heads; ++head) {
      const double increase = 0.2 * Importance(m, layer, head, 1);
      tables.ablation.push_back({layer, "self", head, base + increase, increase});
      sorted.emplace_back(increase, layer, head);
    }
  }
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const auto [score, layer, head] = sorted[i];
    tables.removal.push_back({order, order_seed, static_cast<std::int64_t>(i), layer, head, score});
  }
  for (int tenth = 0; tenth <= 10; ++tenth) {
    const double fraction = 0.1 * tenth;
    const auto removed = static_cast<std::int64_t>(std::floor(fraction * total + 0.5));
    const double really = static_cast<double>(removed) / total;
    const double increase =
        harm * std::pow(really, 2.5) * (1 + 0.1 * static_cast<double>(order_seed)) * 4.0 / (3.0 + m.heads);
    const double nll = base + increase;
    tables.pruning.push_back({order, order_seed, fraction, removed, total - removed, nll, std::exp(nll),
                              PerWord(nll), increase, 0.5 - 0.15 * really});
  }
  return tables;
}

StageSummary MakeSummary(const SyntheticModel& m, const StageTables& tables) {
  StageSummary summary;
  summary.weights_checksum = 0xFEDCBA9876543210u + m.seed;
  summary.digest = TablesDigest(tables, summary.weights_checksum);
  summary.parameters = 500000 + 2 * m.layers * m.embed * m.heads * m.head_size * 2;
  summary.flops_per_step = 6.0 * static_cast<double>(summary.parameters) * 2048;
  summary.valid_nll = FinalNll(m);
  summary.valid_perplexity = PerWord(summary.valid_nll);
  summary.test_nll = summary.valid_nll + 0.01;
  summary.test_perplexity = PerWord(summary.test_nll);
  summary.train_seconds = 40 + 3.0 * m.heads;
  summary.peak_memory_bytes = 300 << 20;
  summary.summary_line = fmt::format("test perplexity {:.1f} per word", summary.test_perplexity);
  return summary;
}

Provenance MakeProvenance(const std::string& id, const std::string& kind, const std::string& parent) {
  Provenance provenance;
  provenance.stage_id = id;
  provenance.kind = kind;
  provenance.parent = parent;
  provenance.config_toml = "[model]\nheads = 4\n";
  provenance.config_json = R"({"model":{"heads":4}})";
  provenance.version = "0.1.0";
  provenance.git_commit = "0123abc";
  provenance.backend = "cpu float32";
  provenance.host = "node0";
  provenance.device = "a test's imagination";
  provenance.data_fingerprint = "89abcdef01234567";
  provenance.attempt = 1;
  provenance.threads = 2;
  provenance.started_at = 1.7e9;
  return provenance;
}

}  // namespace headsweep::testing
