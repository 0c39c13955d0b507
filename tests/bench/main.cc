// headsweep-bench: how fast the kernels and the training step are, as ratios to what this machine can do.
#include <fmt/format.h>

#include <boost/program_options.hpp>
#include <cstdio>
#include <iostream>
#include <string>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "kernels/cpu/allocator.h"
#include "tests/bench/suites.h"

namespace headsweep::bench {

namespace {

struct Suite {
  const char* name;
  const char* help;
  Report (*run)(const Options& options);
};

constexpr Suite kSuites[] = {
    {"ops", "every op at a training step's shapes, beside a copy or a product of the same size", RunOps},
    {"attention", "attention over head sizes and lengths, beside PyTorch's if python3 has it", RunAttention},
    {"products", "our matrix products beside oneDNN's", RunProducts},
    {"step", "a whole training step beside its matrix products alone, and the allocations of a step",
     RunStep},
    {"collective", "a step of two processes: what exchanging gradients costs, with and without overlap",
     RunCollective},
    {"scaling", "the step of 1, 2 and 4 processes, beside what `headsweep plan` makes of the step of one", RunScaling},
    {"launcher", "what the launcher costs: a no-op trial beside GNU parallel, 100,000 trials, a thousand nodes",
     RunLauncher},
};

std::string SuiteList() {
  std::string list = "suites:\n";
  for (const Suite& suite : kSuites) list += fmt::format("  {:<10} {}\n", suite.name, suite.help);
  return list;
}

const Suite* FindSuite(const std::string& name) {
  for (const Suite& suite : kSuites) {
    if (name == suite.name) return &suite;
  }
  return nullptr;
}

int Main(int argc, char** argv) {
  namespace po = boost::program_options;
  Options options;
  std::string suite_name, json_file, precision;
  po::options_description visible("options");
  visible.add_options()("help,h", "print this")("json", po::value(&json_file)->value_name("FILE"),
                                                "also write JSON")(
      "threads", po::value(&options.threads)->multitoken()->value_name("N…"),
      "thread counts to compare (1 2)")("seconds", po::value(&options.seconds)->value_name("S"),
                                        "measure each table at least this long (20)")(
      "device", po::value(&options.device)->value_name("NAME"),
      "cpu (default), cuda, or cuda-on-host (products: cpu only)")(
      "precision", po::value(&precision)->value_name("NAME"), "float32 or bfloat16 (default on cuda)");
  po::options_description all;
  all.add(visible).add_options()("suite", po::value(&suite_name));
  po::positional_options_description positional;
  positional.add("suite", 1);
  po::variables_map values;
  try {
    po::store(po::command_line_parser(argc, argv).options(all).positional(positional).run(), values);
    po::notify(values);
  } catch (const po::error& e) {
    fmt::print(stderr, "headsweep-bench: {}\n", e.what());
    return kExitUsage;
  }
  if (values.count("help") != 0) {
    std::cout << "usage: headsweep-bench SUITE [options]\n\n" << SuiteList() << "\n" << visible;
    return kExitDone;
  }
  const Suite* suite = FindSuite(suite_name);
  if (suite == nullptr) {
    fmt::print(stderr, "headsweep-bench: {}\n{}",
               suite_name.empty() ? "name a suite" : fmt::format("there is no suite \"{}\"", suite_name),
               SuiteList());
    return kExitUsage;
  }
  options.precision = !precision.empty() ? precision : options.device == "cuda" ? "bfloat16" : "float32";
  const Report report = suite->run(options);
  fmt::print("{}", FormatReport(report));
  if (!json_file.empty()) FileSystem::Real().WriteFile(json_file, ReportJson(report));
  return kExitDone;
}

}  // namespace

}  // namespace headsweep::bench

int main(int argc, char** argv) {
  headsweep::TuneAllocator();
  try {
    return headsweep::bench::Main(argc, argv);
  } catch (const std::exception& e) {
    fmt::print(stderr, "headsweep-bench: {}\n", e.what());
    return headsweep::kExitFailed;
  }
}
