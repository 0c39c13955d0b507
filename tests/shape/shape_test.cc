// Rules about the source itself, which no compiler checks.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

struct Source {
  std::string path;    // relative to the root: "kernels/cpu/gemm.cc"
  std::string folder;  // "kernels"; "cluster/base" counts as a folder of its own
  std::vector<std::string> lines;
};

const std::vector<Source>& Sources() {
  static const std::vector<Source> sources = [] {
    std::vector<Source> found;
    const fs::path root = HEADSWEEP_SOURCE_DIR;
    for (const char* folder : {"cluster", "kernels", "data", "sweeps", "results", "trainer", "launcher", "tests"}) {
      for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
        const std::set<std::string> kinds = {".h", ".cc", ".cu", ".cuh"};
        if (!entry.is_regular_file() || !kinds.contains(entry.path().extension().string())) continue;
        Source source;
        source.path = fs::relative(entry.path(), root).string();
        source.folder = source.path.starts_with("cluster/base/") ? "cluster/base" : folder;
        std::ifstream file(entry.path());
        for (std::string line; std::getline(file, line);) source.lines.push_back(line);
        found.push_back(std::move(source));
      }
    }
    return found;
  }();
  return sources;
}

// Calls visit(source, line number, included path, is_system) for every include line.
void ForEachInclude(const std::function<void(const Source&, int, const std::string&, bool)>& visit) {
  static const std::regex include(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  for (const Source& source : Sources()) {
    for (std::size_t i = 0; i < source.lines.size(); ++i) {
      std::smatch match;
      if (std::regex_search(source.lines[i], match, include))
        visit(source, static_cast<int>(i) + 1, match[2], match[1] == "<");
    }
  }
}

std::string FolderOf(const std::string& included) {
  if (included.starts_with("cluster/base/")) return "cluster/base";
  const auto slash = included.find('/');
  return slash == std::string::npos ? "" : included.substr(0, slash);
}

TEST(Shape, IncludesFollowTheDirectionOfDependence) {
  const std::map<std::string, std::set<std::string>> allowed = {
      {"cluster/base", {}},
      {"cluster", {"cluster/base"}},
      {"kernels", {"cluster/base"}},
      {"data", {"cluster/base"}},
      {"sweeps", {"cluster/base"}},
      {"results", {"cluster/base"}},
      {"trainer", {"cluster/base", "kernels", "data", "sweeps", "results"}},
      {"launcher", {"cluster/base", "cluster", "data", "sweeps", "results"}},
  };
  ForEachInclude([&](const Source& source, int line, const std::string& included, bool system) {
    if (system || source.folder == "tests") return;
    const std::string target = FolderOf(included);
    if (!allowed.contains(target) || target == source.folder) return;
    // The one bridge between agents and trainers: constants of the control channel.
    if (included == "trainer/control_protocol.h" && source.folder == "launcher") return;
    EXPECT_TRUE(allowed.at(source.folder).contains(target))
        << source.path << ":" << line << ": " << source.folder << "/ must not include " << included;
  });
}

TEST(Shape, ThirdPartyHeadersStayBehindTheirFence) {
  struct Fence {
    std::regex header;
    std::string where;  // prefix of the paths that may include it
  };
  const std::vector<Fence> fences = {
      {std::regex("^mpi\\.h$"), "launcher/"},
      {std::regex("^(hdf5|hdf5_hl|H5[A-Z]+public)\\.h$"), "results/"},
      {std::regex("dnnl"), "tests/bench/"},
      {std::regex("^(cuda|cublas)"), "kernels/cuda/"},
      {std::regex("^boost/context"), "kernels/cuda/on_host/"},
      {std::regex("^(gloo/|nccl)"), "trainer/collective"},
      {std::regex("^toml"), "sweeps/"},
      {std::regex("^muParser"), "sweeps/"},
      {std::regex("^sentencepiece"), "data/"},
      {std::regex("^hwloc"), "cluster/"},
      {std::regex("^spdlog"), "cluster/base/"},
      {std::regex("^xxhash"), "cluster/base/"},
  };
  ForEachInclude([&](const Source& source, int line, const std::string& included, bool) {
    if (source.folder == "tests") return;
    for (const Fence& fence : fences) {
      if (std::regex_search(included, fence.header)) {
        EXPECT_TRUE(source.path.starts_with(fence.where))
            << source.path << ":" << line << ": <" << included << "> belongs in " << fence.where << " only";
      }
    }
  });
}

TEST(Shape, FilesCanBeReadInOneSitting) {
  for (const Source& source : Sources())
    EXPECT_LE(source.lines.size(), 600u) << source.path << ": two rooms would be clearer";
}

TEST(Shape, EveryHeaderSaysWhatItIs) {
  for (const Source& source : Sources()) {
    if (!source.path.ends_with(".h")) continue;  // a .cc's header says it
    ASSERT_FALSE(source.lines.empty()) << source.path;
    EXPECT_TRUE(source.lines[0].starts_with("//")) << source.path << ": begin with what this file is";
  }
}

TEST(Shape, NoUnfinishedWork) {
  const std::regex unfinished("\\b(TO" "DO|FIX" "ME|X" "XX)\\b");
  for (const Source& source : Sources())
    for (std::size_t i = 0; i < source.lines.size(); ++i)
      EXPECT_FALSE(std::regex_search(source.lines[i], unfinished)) << source.path << ":" << i + 1;
}

TEST(Shape, PathsThatTheDocumentsNameExist) {
  const fs::path root = HEADSWEEP_SOURCE_DIR;
  const std::regex path(R"(`((?:cluster|kernels|data|sweeps|results|trainer|launcher|tests)/[A-Za-z0-9_./-]*)`)");
  for (const char* document : {"README.md", "CONTRIBUTING.md"}) {
    std::ifstream file(root / document);
    ASSERT_TRUE(file.good()) << document;
    int number = 0;
    for (std::string line; std::getline(file, line);) {
      ++number;
      for (std::sregex_iterator it(line.begin(), line.end(), path), end; it != end; ++it)
        EXPECT_TRUE(fs::exists(root / (*it)[1].str())) << document << ":" << number << ": no such file " << (*it)[1];
    }
  }
}

}  // namespace
