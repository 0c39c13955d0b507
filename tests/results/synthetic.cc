#include "tests/results/synthetic.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>
#include <tuple>

#include "cluster/base/hash.h"

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
  provenance.job = "123_4";
  provenance.job_restart = 1;
  provenance.device = "a test's imagination";
  provenance.data_fingerprint = "89abcdef01234567";
  provenance.attempt = 1;
  provenance.threads = 2;
  provenance.started_at = 1.7e9;
  return provenance;
}

namespace {

std::string StageId(const std::string& text) { return HashHex(text); }

AttemptRecord MakeAttempt(const std::string& stage, int attempt, int slot, double start, double seconds) {
  return {.stage_id = stage,
          .attempt = attempt,
          .host = "node0",
          .job = "123_4",
          .slot = fmt::format("cpu:{}", slot),
          .outcome = "finished",
          .cause = "",
          .message = "",
          .job_restart = 1,
          .started_at = 1.7e9 + start,
          .finished_at = 1.7e9 + start + seconds};
}

// Adds trials and their prune stages to an input, slot by slot, as a launcher with two slots would have run
// them.
class SweepMaker {
 public:
  SweepMaker(const SyntheticSweep& sweep, const std::string& directory)
      : sweep_(sweep), directory_(directory) {
    std::filesystem::create_directories(directory);
    input_.sweep_name = sweep.name;
    input_.sweep_toml = fmt::format("name = \"{}\"\n[grid]\n\"model.heads\" = [{}]\n", sweep.name,
                                    fmt::join(sweep.heads, ", "));
    GridAxis heads{"heads", "model.heads", {}}, seeds{"seed", "seed", {}};
    for (const std::int64_t h : sweep.heads) heads.values.emplace_back(h);
    for (int s = 1; s <= sweep.seeds; ++s) seeds.values.emplace_back(std::int64_t{s});
    input_.axes = {heads, {"head_size", "model.head_size", sweep.head_sizes}, seeds};
  }

  CollectInput Make() {
    for (std::size_t h = 0; h < sweep_.heads.size(); ++h) {
      for (std::size_t d = 0; d < sweep_.head_sizes.size(); ++d) {
        for (int s = 0; s < sweep_.seeds; ++s) AddPoint(static_cast<int>(h), static_cast<int>(d), s);
      }
    }
    return input_;
  }

 private:
  void AddPoint(int h, int d, int s) {
    const std::int64_t heads = sweep_.heads[static_cast<std::size_t>(h)];
    const AxisValue& written = sweep_.head_sizes[static_cast<std::size_t>(d)];
    SyntheticModel model;
    model.heads = static_cast<int>(heads);
    const auto* size = std::get_if<std::int64_t>(&written);
    model.head_size = size != nullptr ? static_cast<int>(*size) : std::max(1, model.embed / model.heads);
    model.seed = static_cast<std::uint64_t>(s + 1);
    const std::string id = StageId(fmt::format("{} {} {} {}", sweep_.name, heads, model.head_size, s));
    const auto known = std::find_if(input_.stages.begin(), input_.stages.end(),
                                    [&](const CollectStage& stage) { return stage.id == id; });
    if (known != input_.stages.end()) {
      known->points.push_back({h, d, s});  // two points that resolve to the same configuration
      return;
    }
    CollectStage stage;
    stage.id = id;
    stage.kind = "train";
    stage.config_json =
        fmt::format(R"({{"kind":"train","model":{{"heads":[{0},{0}],"head_size":{1}}},"seed":{2}}})", heads,
                    model.head_size, s + 1);
    stage.columns = {{"heads", heads},
                     {"head_size", std::int64_t{model.head_size}},
                     {"embed", std::int64_t{model.embed}},
                     {"layers", std::int64_t{model.layers}},
                     {"seed", std::int64_t{s + 1}},
                     {"learning_rate", 1e-3},
                     {"corpus", std::string("kjv")}};
    stage.points = {{h, d, s}};
    const int number = trials_++;
    if (sweep_.failures && number == 1) return AddFailed(stage);
    if (sweep_.failures && number == 2) {
      stage.state = "waiting";
      input_.stages.push_back(stage);
      return;
    }
    StageTables tables = MakeTrainTables(model, sweep_.steps, std::max(1, sweep_.steps / 3));
    StageSummary summary = MakeSummary(model, tables);
    stage.state = "finished";
    if (sweep_.failures && number == 3) {
      stage.state = summary.outcome = "diverged";
      summary.valid_nll = summary.test_nll = summary.valid_perplexity = summary.test_perplexity =
          std::nan("");
      summary.summary_line = "diverged at step 31: the loss is NaN";
    }
    Write(stage, tables, summary);
    if (stage.state == "finished") AddPruneStages(model, id);
  }

  void AddFailed(CollectStage& stage) {
    stage.state = "failed";
    stage.reason = "killed by signal 9 <out of \"memory\" & patience>";
    input_.stages.push_back(stage);
    for (int attempt = 1; attempt <= 3; ++attempt) {
      AttemptRecord record = MakeAttempt(stage.id, attempt, attempt % 2, Advance(attempt % 2, 9), 9);
      record.outcome = "failed";
      record.cause = "signal";
      record.message = "killed by signal 9";
      input_.attempts.push_back(record);
    }
  }

  void AddPruneStages(const SyntheticModel& model, const std::string& parent) {
    for (const std::string& order : sweep_.orders) {
      for (int seed = 0; seed < (order == "random" ? sweep_.random_orders : 1); ++seed) {
        CollectStage stage;
        stage.id = StageId(fmt::format("{} {} {}", parent, order, seed));
        stage.kind = "prune";
        stage.parent = parent;
        stage.state = "finished";
        stage.config_json = fmt::format(
            R"({{"kind":"prune","prune":{{"order":"{}","per":"example","seed":{}}}}})", order, seed);
        const StageTables tables = MakePruneTables(model, order, static_cast<std::uint64_t>(seed));
        Write(stage, tables, MakeSummary(model, tables));
      }
    }
  }

  void Write(CollectStage& stage, const StageTables& tables, const StageSummary& summary) {
    stage.result_path = directory_ + "/" + stage.id + ".h5";
    WriteStageFile(stage.result_path, MakeProvenance(stage.id, stage.kind, stage.parent), tables, summary);
    const double seconds = stage.kind == "train" ? summary.train_seconds : 4;
    const int slot = next_free_[0] <= next_free_[1] ? 0 : 1;
    input_.attempts.push_back(MakeAttempt(stage.id, 1, slot, Advance(slot, seconds), seconds));
    input_.attempts.back().outcome = stage.state;
    input_.stages.push_back(stage);
  }

  double Advance(int slot, double seconds) {
    const double start = next_free_[slot];
    next_free_[slot] += seconds + 1;
    return start;
  }

  const SyntheticSweep& sweep_;
  const std::string directory_;
  CollectInput input_;
  int trials_ = 0;
  double next_free_[2] = {0, 0};
};

}  // namespace

CollectInput MakeSweep(const SyntheticSweep& sweep, const std::string& directory) {
  return SweepMaker(sweep, directory).Make();
}

}  // namespace headsweep::testing
