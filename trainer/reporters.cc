#include "trainer/reporters.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "cluster/base/log.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

constexpr double kTerminalSeconds = 2;
constexpr double kProgressSeconds = 0.2;  // control_protocol.h

}  // namespace

void TerminalReporter::Started(std::int64_t step, std::int64_t steps) {
  LogInfo("{} of {} steps done", step, steps);
}

void TerminalReporter::Progress(const std::string& phase, std::int64_t step, std::int64_t steps, double loss,
                                double tokens_per_second) {
  const double now = clock_.Monotonic();
  if (phase == "load" || now - last_ < kTerminalSeconds) return;  // loading logs what it does itself
  last_ = now;
  LogInfo("{} {}/{}  loss {:.4f}  {:.0f} tokens/s", phase, step, steps, loss, tokens_per_second);
}

void TerminalReporter::Evaluated(const EvaluationRow& row) {
  LogInfo("step {}, {}: {:.4f} nats a piece, perplexity {:.2f} a word ({} pieces in {:.2f} s)", row.step,
          row.split, row.nll, row.perplexity_per_word, row.pieces, row.seconds);
}

void TerminalReporter::Checkpointed(std::int64_t, const std::string& path) { LogInfo("checkpoint {}", path); }

void AgentReporter::Started(std::int64_t step, std::int64_t steps) {
  channel_.Poll();
  if (said_hello_) return;
  said_hello_ = true;
  channel_.Send({{control::kType, control::kHello},
                 {"pid", ::getpid()},
                 {"stage", stage_id_},
                 {"attempt", attempt_},
                 {"step", step},
                 {"steps", steps}});
}

void AgentReporter::Progress(const std::string& phase, std::int64_t step, std::int64_t steps, double loss,
                             double tokens_per_second) {
  channel_.Poll();
  if (!said_hello_ && phase != "load") Started(step, steps);
  const double now = clock_.Monotonic();
  if (phase == last_phase_ && now - last_progress_ < kProgressSeconds) return;
  last_progress_ = now;
  last_phase_ = phase;
  channel_.Send({{control::kType, control::kProgress},
                 {"phase", phase},
                 {"step", step},
                 {"steps", steps},
                 {"loss", loss},
                 {"tokens_per_second", tokens_per_second}});
}

void AgentReporter::Evaluated(const EvaluationRow& row) {
  channel_.Send({{control::kType, control::kEvaluation},
                 {"step", row.step},
                 {"split", row.split},
                 {"nll", row.nll},
                 {"perplexity_per_word", row.perplexity_per_word}});
}

void AgentReporter::Checkpointed(std::int64_t step, const std::string& path) {
  channel_.Send({{control::kType, control::kCheckpoint}, {"step", step}, {"path", path}});
}

}  // namespace headsweep
