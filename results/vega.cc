#include "results/vega.h"

#include <fmt/format.h>

#include <cstdlib>
#include <vector>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "results/report_assets.h"

namespace headsweep::report {
namespace {

constexpr const char* kDebianFolder = "/usr/share/javascript/vega";

// What our charts need: no maps, trees, forces or word clouds. Order does not matter
// (report/module_loader.js).
constexpr const char* kModules[] = {
    "vega-util",      "vega-time",       "vega-format",         "vega-loader",          "vega-dataflow",
    "vega-scale",     "vega-statistics", "vega-canvas",         "vega-scenegraph",      "vega-expression",
    "vega-selection", "vega-functions",  "vega-event-selector", "vega-parser",          "vega-runtime",
    "vega-view",      "vega-encode",     "vega-transforms",     "vega-view-transforms", "vega-interpreter"};

std::string ReadModule(const std::vector<std::string>& folders, const std::string& name) {
  const FileSystem& files = FileSystem::Real();
  for (const std::string& folder : folders) {
    for (const char* ending : {".min.js", ".js"}) {
      const std::string path = JoinPath(folder, name + ending);
      if (files.Exists(path)) return files.ReadFile(path);
    }
  }
  throw Unsupported(
      fmt::format("the report's charts need {}.js of Vega 5, which is not in {}: install Debian's package "
                  "libjs-vega, or set HEADSWEEP_VEGA to a folder that has it",
                  name, fmt::join(folders, " or ")));
}

// Ready to stand in a <script> element: no end tag, no reference to a source map that is not there.
std::string Inline(std::string source) {
  for (std::size_t at = 0; (at = source.find("</script", at)) != std::string::npos;)
    source.replace(at, 2, "<\\/");
  if (source.find("<!--") != std::string::npos) throw Unsupported("a module of Vega holds an HTML comment");
  const auto map = source.rfind("//# sourceMappingURL=");
  if (map != std::string::npos) source.erase(map);
  return source;
}

}  // namespace

std::string VegaScript() {
  std::vector<std::string> folders;
  if (const char* set = std::getenv("HEADSWEEP_VEGA"); set != nullptr) folders.push_back(set);
  folders.push_back(kDebianFolder);
  std::string script(Asset("module_loader.js"));
  for (const char* name : kModules) {
    script += fmt::format("headsweepModules.next = \"{}\";\n{}\n", name, Inline(ReadModule(folders, name)));
  }
  return script;
}

}  // namespace headsweep::report
