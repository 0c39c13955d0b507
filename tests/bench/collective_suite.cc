// Suite "collective": what exchanging gradients adds to a step of two processes, and how much of it hides
// behind the backward pass. Both processes run here, one thread each; every variant in turn, round after
// round.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "kernels/backend.h"
#include "tests/bench/gemm_skeleton.h"
#include "tests/bench/step_model.h"
#include "tests/bench/suites.h"
#include "tests/support/temp_dir.h"
#include "trainer/gradient_exchange.h"
#include "trainer/optimizer.h"
#include "trainer/rendezvous.h"

namespace headsweep::bench {
namespace {

constexpr int kProcesses = 2;
constexpr int kLeastRounds = 10, kMostRounds = 200;

struct Variant {
  std::string name;
  std::int64_t bucket_bytes = 0;  // 0: one bucket after the backward pass
  Wire wire = Wire::kFloat32;
  bool exchanges = true;
};

const std::vector<Variant>& Variants() {
  static const std::vector<Variant> variants = {
      {"no exchange", 0, Wire::kFloat32, false},
      {"all at the end", 0},
      {"buckets of 25 MB", 25 << 20},
      {"buckets of 4 MB", 4 << 20},
      {"buckets of 1 MB", 1 << 20},
      {"buckets of 4 MB, bfloat16", 4 << 20, Wire::kBfloat16},
  };
  return variants;
}

struct Sample {
  double step = 0, exposed = 0;  // seconds
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One of the two processes: a model, and a collective and an exchange for each variant.
class Process {
 public:
  Process(int rank, const std::string& folder, const StepShape& shape)
      : shape_(shape),
        backend_(MakeBackend({"cpu", 1})),
        model_(*backend_, ModelShapeOf(shape), shape.B, Model::Purpose::kTrain),
        optimizer_(model_, TrainConfig{}),
        batch_(RandomBatch(shape)) {
    model_.Initialize(1);
    for (const Variant& variant : Variants()) {
      meetings_.push_back(
          MakeFileRendezvous(FileSystem::Real(), folder + "/" + std::to_string(meetings_.size())));
      collectives_.push_back(MakeGlooCollective(
          {.rank = rank, .world_size = kProcesses, .timeout_seconds = 60, .wire = variant.wire},
          *meetings_.back()));
      exchanges_.push_back(
          std::make_unique<GradientExchange>(*collectives_.back(), model_, variant.bucket_bytes));
    }
  }

  // Every variant `rounds` times. (variant, round)
  std::vector<std::vector<Sample>> Run(int rounds) {
    std::vector<std::vector<Sample>> samples(Variants().size());
    for (int round = -1; round < rounds; ++round) {
      for (std::size_t i = 0; i < Variants().size(); ++i) {
        // Rotated, so that none always follows the same.
        const std::size_t variant = (i + static_cast<std::size_t>(round + 1)) % Variants().size();
        const Sample sample = Step(variant);
        if (round >= 0) samples[variant].push_back(sample);
      }
    }
    return samples;
  }
  // As many rounds as fit into so many seconds; both processes get rank 0's number.
  int RoundsWithin(double seconds) {
    double longest = 0;
    for (std::size_t variant = 0; variant < Variants().size(); ++variant) longest += Step(variant).step;
    int rounds = std::clamp(static_cast<int>(seconds / longest), kLeastRounds, kMostRounds);
    collectives_.front()->Broadcast(&rounds, sizeof rounds, 0);
    return rounds;
  }
  std::size_t BucketsOf(std::size_t variant) const {
    return PlanBuckets(model_.layout(), model_.shape(), Variants()[variant].bucket_bytes).size();
  }
  double GradientBytes() const { return static_cast<double>(model_.layout().size()) * sizeof(float); }
  std::string machine() const { return backend_->description(); }

 private:
  Sample Step(std::size_t variant) {
    const bool exchanges = Variants()[variant].exchanges;
    GradientExchange& exchange = *exchanges_[variant];
    collectives_[variant]->Barrier();
    const SystemClock clock;
    const double started = clock.Monotonic(), waited = exchange.waited_seconds();
    ForwardBackwardOptions options;
    options.gradient_scale = 1.0f / static_cast<float>(kProcesses * batch_.target_count);
    options.step = ++step_;
    if (exchanges) options.on_layer_done = [&](int layer) { exchange.LayerDone(layer); };
    model_.ZeroGradients();
    model_.ForwardBackward(batch_, options);
    if (exchanges) exchange.Finish();
    optimizer_.GradientNorm();
    optimizer_.Update(1e-4, step_);
    return {clock.Monotonic() - started, exchange.waited_seconds() - waited};
  }

  const StepShape shape_;
  std::unique_ptr<Backend> backend_;
  Model model_;
  Optimizer optimizer_;
  Batch batch_;
  std::vector<std::unique_ptr<Rendezvous>> meetings_;
  std::vector<std::unique_ptr<Collective>> collectives_;
  std::vector<std::unique_ptr<GradientExchange>> exchanges_;
  std::int64_t step_ = 0;
};

}  // namespace

Report RunCollective(const Options& options) {
  const StepShape shape;
  const testing::TempDir folder;
  const pid_t peer = ::fork();  // before any thread
  if (peer < 0) throw IoError("fork", "headsweep-bench", errno);
  if (peer == 0) {
    try {
      Process process(1, folder.path(), shape);
      process.Run(process.RoundsWithin(options.seconds));
      ::_exit(kExitDone);
    } catch (const std::exception& error) {
      fmt::print(stderr, "headsweep-bench: {}\n", error.what());
      ::_exit(kExitFailed);
    }
  }
  Process process(0, folder.path(), shape);
  const int rounds = process.RoundsWithin(options.seconds);
  const std::vector<std::vector<Sample>> samples = process.Run(rounds);
  ::waitpid(peer, nullptr, 0);

  Report report;
  report.suite = "collective";
  report.machine = process.machine();
  Table table{
      fmt::format("{} processes of one thread, B {} each, T {}, layers {}, embed {}: {:.1f} MB of gradients",
                  kProcesses, shape.B, shape.T, shape.L, shape.C, process.GradientBytes() / 1e6),
      {"variant", "messages", "step ms", "step min", "exposed ms", "exposed min", "exposed % of step"},
      {}};
  for (std::size_t variant = 0; variant < samples.size(); ++variant) {
    std::vector<double> steps, exposed;
    for (const Sample& sample : samples[variant]) {
      steps.push_back(sample.step * 1e3);
      exposed.push_back(sample.exposed * 1e3);
    }
    const double messages =
        Variants()[variant].exchanges ? static_cast<double>(process.BucketsOf(variant)) : 0;
    table.rows.push_back({Variants()[variant].name, messages, Median(steps),
                          *std::min_element(steps.begin(), steps.end()), Median(exposed),
                          *std::min_element(exposed.begin(), exposed.end()),
                          100 * Median(exposed) / Median(steps)});
  }
  report.tables.push_back(table);
  report.notes = {
      fmt::format("{} rounds, every variant in turn. Exposed: what a step waits for sums after its backward "
                  "pass. On a machine whose "
                  "cores all compute, messages that travel early take their processor time from the backward "
                  "pass: compare step "
                  "times too.",
                  rounds)};
  return report;
}

}  // namespace headsweep::bench
