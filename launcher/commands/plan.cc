#include <boost/program_options/value_semantic.hpp>

#include <fmt/ranges.h>

#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/scaling.h"
#include "launcher/commands/command.h"

namespace headsweep {
namespace {

namespace po = boost::program_options;

constexpr int kMostDevices = 1024;

double Value(const Arguments& arguments, const char* name) { return arguments.options[name].as<double>(); }

// Reads numbers, and collects what is wrong with them, so that all of it is said at once.
class PlanReader {
 public:
  explicit PlanReader(const Arguments& arguments) : arguments_(arguments) {}

  double Positive(const char* name) {
    const double value = Value(arguments_, name);
    Require(value > 0 && std::isfinite(value), fmt::format("--{} must be a number above 0", name));
    return value;
  }
  // Without a default: what is measured, or belongs to the model.
  double Measured(const char* name, const char* source) {
    if (!arguments_.options[name].defaulted()) return Positive(name);
    Require(false, fmt::format("--{} is missing: {}", name, source));
    return 1;
  }
  void Require(bool holds, const std::string& complaint) {
    if (!holds) complaints_.push_back(complaint);
  }
  void ThrowIfAny() const {
    if (!complaints_.empty()) throw ConfigError(fmt::format("plan:\n  {}", fmt::join(complaints_, "\n  ")));
  }

 private:
  const Arguments& arguments_;
  std::vector<std::string> complaints_;
};

ScalingModel ModelOf(const Arguments& arguments) {
  PlanReader read(arguments);
  ScalingModel model;
  model.step_seconds = read.Measured("step-seconds", "seconds of one step on one device; column seconds of /steps in results.h5");
  model.fixed_seconds = Value(arguments, "fixed-seconds");
  model.batch = static_cast<std::int64_t>(read.Measured("batch", "train.batch, the examples of one step"));
  model.gradient_bytes = 4 * read.Measured("parameters", "of the model; `headsweep expand` shows them");
  model.bucket_bytes = Value(arguments, "bucket-megabytes") * (1 << 20);
  read.Require(model.bucket_bytes >= 0, "--bucket-megabytes must not be negative");
  if (arguments.Has("bfloat16")) {
    model.gradient_bytes /= 2;
    model.bucket_bytes /= 2;
  }
  model.devices_per_node = arguments.Number("per-node");
  read.Require(model.devices_per_node >= 1, "--per-node counts from 1");
  model.inner = {read.Positive("inner-gbytes") * 1e9, read.Positive("inner-latency") * 1e-6};
  model.outer = {read.Positive("outer-gbytes") * 1e9, read.Positive("outer-latency") * 1e-6};
  model.overlap = Value(arguments, "overlap");
  read.Require(model.overlap >= 0 && model.overlap <= 1, "--overlap is from 0 to 1");
  read.ThrowIfAny();
  if (!(model.fixed_seconds >= 0 && model.fixed_seconds < model.step_seconds))
    throw ConfigError("plan: --fixed-seconds is a part of --step-seconds");
  return model;
}

void PrintJson(const ScalingModel& model) {
  nlohmann::json points = nlohmann::json::array();
  for (int devices = 1; devices <= kMostDevices && devices <= model.batch; devices *= 2) {
    const ScalingPoint point = Scale(model, devices);
    points.push_back({{"devices", devices},
                      {"compute_seconds", point.compute},
                      {"network_seconds", point.communication},
                      {"exposed_seconds", point.exposed},
                      {"step_seconds", point.step},
                      {"speedup", point.speedup},
                      {"efficiency", point.efficiency}});
  }
  std::cout << DumpJson(nlohmann::json{{"points", points}}) << "\n";
}

int RunPlan(const Arguments& arguments) {
  const ScalingModel model = ModelOf(arguments);
  if (arguments.Has("json")) {
    PrintJson(model);
    return kExitDone;
  }
  std::cout << fmt::format("{:>8} {:>12} {:>14} {:>11} {:>11} {:>9} {:>11}\n", "devices", "compute ms",
                           "network ms", "exposed ms", "step ms", "speed-up", "efficiency");
  for (int devices = 1; devices <= kMostDevices; devices *= 2) {
    if (devices > model.batch) {
      std::cout << fmt::format("beyond {} devices some would have no example of the batch\n", model.batch);
      break;
    }
    const ScalingPoint point = Scale(model, devices);
    std::cout << fmt::format("{:>8} {:>12.2f} {:>14.2f} {:>11.2f} {:>11.2f} {:>9.1f} {:>10.0f}%\n", devices,
                             point.compute * 1e3, point.communication * 1e3, point.exposed * 1e3,
                             point.step * 1e3, point.speedup, point.efficiency * 100);
  }
  return kExitDone;
}

}  // namespace

SubCommand MakePlanCommand() {
  SubCommand command{
      .name = "plan",
      .least = 0,
      .most = 0,
      .summary = "estimates a training step on 1 to 1024 devices from the measured step of one",
      .details =
          "examples\n"
          "  headsweep plan --step-seconds 1.9 --batch 512 --parameters 110e6 --per-node 8\n"
          "  headsweep plan --step-seconds 0.4 --batch 32 --parameters 5e6 --overlap 0 --inner-gbytes 1 "
          "--inner-latency 300\n\n"
          "The step of one device is in a trial's steps (results.h5, column seconds); parameters in "
          "`headsweep "
          "expand`.\n"
          "Assumed: work shrinks with each device's share of the batch, ceil(batch / devices), a third of it "
          "forward and two\n"
          "thirds backward; buckets of gradients complete evenly during the backward pass and travel one "
          "after "
          "the other, each\n"
          "by a ring or a tree, whichever is shorter, first within the nodes, then between them over one "
          "link a "
          "node; a last\n"
          "message of a few bytes is never hidden. Stragglers, evaluations and checkpoints are not in it.\n",
      .run = RunPlan};
  const auto number = [](double fallback, const char* name) {
    return po::value<double>()->default_value(fallback)->value_name(name);
  };
  command.options.add_options()                                                                           //
      ("step-seconds", number(0, "S"), "measured: one step of the whole effective batch on one device")   //
      ("fixed-seconds", number(0, "S"), "of it, what does not shrink with the share: the weight update")  //
      ("batch", number(0, "N"), "examples of the effective batch")                                        //
      ("parameters", number(0, "N"), "of the model")                                                      //
      ("bucket-megabytes", number(25, "MB"),
       "run.bucket_megabytes; 0: one message after the backward pass")                        //
      ("bfloat16", po::bool_switch(), "run.wire = \"bfloat16\": half the bytes")              //
      ("per-node", po::value<int>()->default_value(8)->value_name("N"), "devices of a node")  //
      ("inner-gbytes", number(200, "GB/s"), "bandwidth of a device within its node")          //
      ("inner-latency", number(8, "US"), "microseconds of a message within a node")           //
      ("outer-gbytes", number(25, "GB/s"), "bandwidth of a node to the others")               //
      ("outer-latency", number(20, "US"), "microseconds of a message between nodes")          //
      ("overlap", number(1, "0…1"), "part of the network's time that can hide behind computation; 0 on CPUs")  //
      ("json", po::bool_switch(),
       "for programs: {points: [{devices, compute_seconds, network_seconds, exposed_seconds, step_seconds, speedup, efficiency}]}");
  return command;
}

}  // namespace headsweep
