// What ptxas makes of the attention kernels: registers, spills and shared memory, per head-size class. No
// spills up to head size 128. Needs nvcc but no card; skips without nvcc. The table:
// build/tests/ptxas_report_test.
//
// nvcc is looked for as the build does: CUDACXX, PATH, CUDA_HOME, CUDA_PATH, /usr/local/cuda. One
// architecture, sm_80 (the one with the fewest registers to spare) or HEADSWEEP_PTXAS_ARCHITECTURE. About 4 s
// of CPU time a file, 14 files, with nvcc 13.0.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <regex>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/cuda/heuristics.h"

namespace headsweep {
namespace {

namespace fs = std::filesystem;

// Path of nvcc, or "".
std::string FindNvcc() {
  std::vector<fs::path> candidates;
  if (const char* compiler = std::getenv("CUDACXX")) candidates.emplace_back(compiler);
  if (const char* path = std::getenv("PATH")) {
    std::istringstream folders(path);
    for (std::string folder; std::getline(folders, folder, ':');)
      candidates.push_back(fs::path(folder) / "nvcc");
  }
  for (const char* name : {"CUDA_HOME", "CUDA_PATH", "CUDA_ROOT"}) {
    if (const char* root = std::getenv(name)) candidates.push_back(fs::path(root) / "bin" / "nvcc");
  }
  candidates.emplace_back("/usr/local/cuda/bin/nvcc");
  for (const fs::path& candidate : candidates) {
    if (access(candidate.c_str(), X_OK) == 0 && !fs::is_directory(candidate)) return candidate.string();
  }
  return "";
}

struct Output {
  int status = -1;
  std::string text;  // stdout and stderr
};

Output Execute(const std::string& command) {
  Output output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return output;
  std::array<char, 4096> buffer;
  while (const std::size_t count = fread(buffer.data(), 1, buffer.size(), pipe))
    output.text.append(buffer.data(), count);
  output.status = pclose(pipe);
  return output;
}

// What ptxas says of one kernel.
struct Usage {
  std::string kernel;  // mangled
  int registers = 0, spill_stores = 0, spill_loads = 0;
  int static_shared = 0;  // bytes
};

std::vector<Usage> ParsePtxas(const std::string& text) {
  static const std::regex kEntry("Compiling entry function '([^']+)'");
  static const std::regex kSpills("([0-9]+) bytes spill stores, ([0-9]+) bytes spill loads");
  static const std::regex kRegisters("Used ([0-9]+) registers");
  static const std::regex kShared("([0-9]+) bytes smem");
  std::vector<Usage> usages;
  std::istringstream lines(text);
  std::smatch match;
  for (std::string line; std::getline(lines, line);) {
    if (std::regex_search(line, match, kEntry)) {
      usages.push_back({match[1]});
    } else if (!usages.empty() && std::regex_search(line, match, kSpills)) {
      usages.back().spill_stores = std::stoi(match[1]);
      usages.back().spill_loads = std::stoi(match[2]);
    } else if (!usages.empty() && std::regex_search(line, match, kRegisters)) {
      usages.back().registers = std::stoi(match[1]);
      if (std::regex_search(line, match, kShared)) usages.back().static_shared = std::stoi(match[1]);
    }
  }
  return usages;
}

TEST(PtxasReport, ReadsWhatPtxasPrints) {
  const std::vector<Usage> usages = ParsePtxas(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function '_ZN1aE' for 'sm_80'\n"
      "ptxas info    : Function properties for _ZN1aE\n"
      "    32 bytes stack frame, 28 bytes spill stores, 36 bytes spill loads\n"
      "ptxas info    : Used 255 registers, used 1 barriers, 32 bytes cumulative stack size, 128 bytes smem, "
      "552 bytes "
      "cmem[0]\n");
  ASSERT_EQ(usages.size(), 1u);
  EXPECT_EQ(usages[0].kernel, "_ZN1aE");
  EXPECT_EQ(usages[0].registers, 255);
  EXPECT_EQ(usages[0].spill_stores, 28);
  EXPECT_EQ(usages[0].spill_loads, 36);
  EXPECT_EQ(usages[0].static_shared, 128);
}

using ClassParam = std::tuple<std::string, int>;  // element, head-size class

class AttentionPtxas : public ::testing::TestWithParam<ClassParam> {};

TEST_P(AttentionPtxas, NoSpillsUpToHeadSize128) {
  const std::string nvcc = FindNvcc();
  if (nvcc.empty())
    GTEST_SKIP() << "no nvcc on this machine: registers and spills of the kernels are not known";
  const auto [element, head] = GetParam();
  const char* set = std::getenv("HEADSWEEP_PTXAS_ARCHITECTURE");
  const std::string architecture = set == nullptr ? "sm_80" : set;
  const std::string source = HEADSWEEP_SOURCE_DIR;
  const std::string file = source + "/kernels/cuda/attention_" + element + "_" + std::to_string(head) + ".cu";
  const Output output = Execute("\"" + nvcc + "\" -std=c++17 -cubin -arch=" + architecture +
                                " -Xptxas -v -I\"" + source + "\" -o /dev/null \"" + file + "\"");
  ASSERT_EQ(output.status, 0) << nvcc << " cannot compile " << file << ":\n" << output.text;

  const std::tuple<const char*, AttentionPass> kKernels[] = {
      {"AttentionForwardKernel", AttentionPass::kForward},
      {"AttentionQueryGradientKernel", AttentionPass::kQueryGradient},
      {"AttentionKeyGradientKernel", AttentionPass::kKeyGradient}};
  const std::vector<Usage> usages = ParsePtxas(output.text);
  for (const auto& [name, pass] : kKernels) {
    const auto usage = std::find_if(
        usages.begin(), usages.end(),
        [kernel = std::string(name)](const Usage& u) { return u.kernel.find(kernel) != std::string::npos; });
    ASSERT_NE(usage, usages.end()) << name << " is not in what ptxas says of " << file << ":\n"
                                   << output.text;
    std::ostringstream row;
    row << architecture << "  " << name << "  " << element << "  head " << head << "  registers "
        << usage->registers << "  spills " << usage->spill_stores << " stored " << usage->spill_loads
        << " loaded  static shared " << usage->static_shared << " B  dynamic shared";
    for (const int kib : {99, 163, 227}) {
      const AttentionPlan plan =
          PlanAttention(pass, element == "bf16" ? 2 : 4, head, 4096, 512, {kib * 1024, 132});
      row << "  " << kib << " KiB: " << plan.shared_bytes << " B, " << plan.warps << " warps, " << plan.stages
          << " stages;";
    }
    std::cout << row.str() << "\n";
    EXPECT_GT(usage->registers, 0);
    if (head <= 128) {
      EXPECT_EQ(usage->spill_stores + usage->spill_loads, 0) << row.str();
    }
    const int threads = 32 * (pass == AttentionPass::kForward ? kMaxWarps : kMaxWarps / 2);
    EXPECT_LE(usage->registers * threads, 65536)
        << "a block of the largest size would not start: " << row.str();
  }
}

std::string ClassName(const ::testing::TestParamInfo<ClassParam>& of) {
  return std::get<0>(of.param) + "_" + std::to_string(std::get<1>(of.param));
}
INSTANTIATE_TEST_SUITE_P(Classes, AttentionPtxas,
                         ::testing::Combine(::testing::Values("bf16", "float"),
                                            ::testing::ValuesIn(kHeadClasses)),
                         ClassName);

}  // namespace
}  // namespace headsweep
