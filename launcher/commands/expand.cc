#include "sweeps/expansion.h"

#include <boost/program_options/value_semantic.hpp>

#include <iostream>

#include "cluster/base/errors.h"
#include "launcher/commands/command.h"
#include "launcher/planned_sweep.h"

namespace headsweep {
namespace {

namespace po = boost::program_options;

int RunExpand(const Arguments& arguments) {
  ExpandOptions options;
  options.sweep_path = arguments.Positional(0);
  options.gflops = arguments.options["gflops"].as<double>();
  int views = 0;
  for (const auto& [name, view] :
       {std::pair{"count", ExpandView::kCount}, std::pair{"list", ExpandView::kList},
        std::pair{"json", ExpandView::kJson}, std::pair{"keys", ExpandView::kKeys},
        std::pair{"explain-exclusions", ExpandView::kExclusions}}) {
    if (!arguments.Has(name)) continue;
    options.view = view;
    ++views;
  }
  if (views > 1)
    throw ConfigError("--count, --list, --json, --keys and --explain-exclusions exclude each other");
  if (options.sweep_path.empty() && options.view != ExpandView::kKeys)
    throw ConfigError("expand: name a sweep file\nusage: headsweep expand SWEEP.toml [options]");
  if (arguments.Has("ids")) options.fingerprint_of = FingerprintOfSource();
  if (arguments.Has("all")) options.most_rows = 0;
  Expand(options, std::cout, std::cerr);
  return kExitDone;
}

}  // namespace

SubCommand MakeExpandCommand() {
  SubCommand command{
      .name = "expand",
      .arguments = "SWEEP.toml",
      .least = 0,
      .most = 1,
      .summary = "shows what a sweep would run: trials, parameters, FLOPs, memory, time; touches nothing",
      .details =
          "examples\n"
          "  headsweep expand heads.toml\n"
          "  headsweep expand heads.toml --count              # of any size, at once\n"
          "  headsweep expand heads.toml --explain-exclusions\n"
          "  headsweep expand heads.toml --ids                # with the trials' ids; reads the corpus\n"
          "  headsweep expand --keys                          # every key of the sweep language\n",
      .run = RunExpand};
  command.options.add_options()("count", po::bool_switch(), "only how many")("list", po::bool_switch(),
                                                                             "one line a point of the grid")(
      "json", po::bool_switch(), "everything, for programs")("keys", po::bool_switch(),
                                                             "the keys of the sweep language; needs no file")(
      "explain-exclusions", po::bool_switch(), "what each [[exclude]] removes")(
      "ids", po::bool_switch(), "with the ids under which trials are kept")("all", po::bool_switch(),
                                                                            "all rows of the table")(
      "gflops", po::value<double>()->default_value(0)->value_name("G"),
      "speed of one trial for the estimate of time; 0: measured here");
  return command;
}

}  // namespace headsweep
