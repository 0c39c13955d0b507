// Opens reports in a headless Chromium: no console message, every chart drawn, numbers there without scripts,
// hostile names harmless.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <regex>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "results/collect.h"
#include "tests/results/synthetic.h"
#include "tests/support/temp_dir.h"

namespace headsweep {
namespace {

using ::testing::HasSubstr;
using testing::MakeSweep;
using testing::SyntheticSweep;
using testing::TempDir;

// $HEADSWEEP_CHROMIUM or what is on the path; "" if there is none.
std::string Chromium() {
  if (const char* set = std::getenv("HEADSWEEP_CHROMIUM"); set != nullptr) return set;
  for (const char* name : {"chromium", "chromium-browser", "google-chrome"}) {
    if (std::system(fmt::format("command -v {} >/dev/null 2>&1", name).c_str()) == 0) return name;
  }
  return "";
}

struct Opened {
  std::string dom;      // after the scripts ran
  std::string charts;   // "drawn", or which chart failed and why
  std::string console;  // console messages, one a line
};

// width: of the window. options: more of Chromium's.
Opened Open(const TempDir& dir, const std::string& page, int width = 1280, const std::string& options = "") {
  const std::string command = fmt::format(
      "timeout 100 {} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
      "--user-data-dir='{}/profile' "
      "--window-size={},2000 --enable-logging=stderr --virtual-time-budget=20000 {} --dump-dom 'file://{}' "
      ">'{}/dom.html' "
      "2>'{}/log.txt'",
      Chromium(), dir.path(), width, options, page, dir.path(), dir.path());
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  Opened opened{FileSystem::Real().ReadFile(dir / "dom.html"), "", ""};
  std::smatch charts;
  if (std::regex_search(opened.dom, charts, std::regex("<body data-charts=\"([^\"]*)\"")))
    opened.charts = charts[1];
  const std::string log = FileSystem::Real().ReadFile(dir / "log.txt");
  const std::regex console("[^\n]*CONSOLE[^\n]*");
  for (std::sregex_iterator it(log.begin(), log.end(), console), end; it != end; ++it)
    opened.console += it->str() + "\n";
  return opened;
}

// The part of the DOM that is the chart's <svg>, "" if it was not drawn.
std::string Svg(const std::string& dom, const std::string& id) {
  const auto place = dom.find(fmt::format("id=\"{}\"", id));
  if (place == std::string::npos) return "";
  const auto end = dom.find("</figure>", place), start = dom.find("<svg", place);
  return start == std::string::npos || start > end ? "" : dom.substr(start, end - start);
}

// Elements that Vega drew for marks of a kind ("mark-symbol": a <g> holding one <path> an item).
std::size_t Marks(const std::string& svg, const std::string& kind) {
  std::size_t count = 0;
  for (std::size_t at = 0;
       (at = svg.find(fmt::format("class=\"{} role-mark", kind), at)) != std::string::npos;) {
    const auto end = svg.find("</g>", at);
    for (std::size_t item = at; (item = svg.find("<path", item)) < end;) ++count, ++item;
    at = end;
  }
  return count;
}

std::string TextOf(const std::string& html) { return std::regex_replace(html, std::regex("<[^>]*>"), " "); }

class Browser : public ::testing::Test {
 protected:
  void SetUp() override {
    if (Chromium().empty()) GTEST_SKIP() << "no chromium on this machine";
  }
  std::string MakeReport(const SyntheticSweep& sweep) {
    const CollectInput input = MakeSweep(sweep, dir_ / "stages");
    Collect(input, dir_ / "results.h5");
    WriteReport(dir_ / "results.h5", dir_ / "report.html");
    return dir_ / "report.html";
  }
  TempDir dir_;
};

TEST_F(Browser, DrawsEveryChartWithoutAConsoleMessage) {
  const SyntheticSweep sweep;
  const Opened page = Open(dir_, MakeReport(sweep));
  EXPECT_EQ(page.console, "");
  EXPECT_EQ(page.charts, "drawn");
  // 2 head sizes x 4 head counts.
  EXPECT_EQ(Marks(Svg(page.dom, "chart-quality"), "mark-symbol"), 8u);
  EXPECT_GE(Marks(Svg(page.dom, "chart-quality"), "mark-area"), 2u);
  // Pooled models and 5 groups with at least 4 heads, 4 orders, 11 fractions.
  EXPECT_GE(Marks(Svg(page.dom, "chart-pruning"), "mark-symbol"), 6u * 4 * 11);
  EXPECT_GE(Marks(Svg(page.dom, "chart-speed"), "mark-line"), 2u);
  EXPECT_GE(Marks(Svg(page.dom, "chart-importance"), "mark-rect"), 2u);
  EXPECT_GE(Marks(Svg(page.dom, "chart-importance-change"), "mark-rect"), 2u * 3);
  EXPECT_GE(Marks(Svg(page.dom, "chart-ablation"), "mark-rect"), 2u);
  EXPECT_GE(Marks(Svg(page.dom, "chart-training"), "mark-line"), 18u);
  EXPECT_GE(Marks(Svg(page.dom, "chart-timeline"), "mark-rect"), 18u);
  for (const char* title : {"attention heads per layer", "test perplexity per word", "heads removed",
                            "training loss, nats a piece", "minutes since"}) {
    EXPECT_NE(TextOf(page.dom).find(title), std::string::npos) << title;
  }
}

TEST_F(Browser, DrawsOnANarrowScreenToo) {
  SyntheticSweep sweep;
  sweep.heads = {2, 4};
  const Opened page = Open(dir_, MakeReport(sweep), 420);
  EXPECT_EQ(page.console, "");
  EXPECT_EQ(page.charts, "drawn");
}

TEST_F(Browser, HostileNamesAreShownAndDoNothing) {
  SyntheticSweep sweep;
  sweep.heads = {2, 4};
  sweep.seeds = 1;
  sweep.name =
      "</script><script>document.title='owned'</script><!--<script>\u2028'\"&<img src=x onerror=alert(1)>";
  sweep.head_sizes = {std::string("</script><b onclick=x>embed"), std::string("__proto__")};
  sweep.orders = {"<svg onload=alert(2)>", "constructor"};
  const Opened page = Open(dir_, MakeReport(sweep));
  EXPECT_EQ(page.console, "");
  EXPECT_EQ(page.charts, "drawn");
  for (const char* element : {"<title>owned", "<img", "<svg onload", "<b onclick"}) {
    EXPECT_EQ(page.dom.find(element), std::string::npos) << element;
  }
  EXPECT_NE(page.dom.find("&lt;/script&gt;&lt;script&gt;document.title='owned'"), std::string::npos);
  EXPECT_GE(Marks(Svg(page.dom, "chart-quality"), "mark-symbol"), 2u);
}

TEST_F(Browser, ChoosingATrialRedrawsItsHeadsAndAHeadingSorts) {
  const std::string path = MakeReport(SyntheticSweep{});
  std::string html = FileSystem::Real().ReadFile(path);
  // What a person would do, once the charts are there: choose a trial of one head (so 2 cells), sort
  // trials by perplexity.
  const std::string act = R"(<script>
    const wait = setInterval(() => {
      if (document.body.dataset.charts !== "drawn") return;
      clearInterval(wait);
      const select = document.querySelector("select[data-signal=trial]");
      select.value = [...select.options].find((o) => o.textContent.startsWith("1 head,")).value;
      select.dispatchEvent(new Event("change"));
      const heads = [...document.querySelectorAll("#runs th")];
      heads.find((h) => h.textContent === "test perplexity").click();
      const first = document.querySelector("#runs tbody tr").cells[2].textContent;
      setTimeout(() => { document.body.dataset.acted = first; }, 500);
    }, 50);
  </script></body>)";
  html.replace(html.rfind("</body>"), 7, act);
  FileSystem::Real().WriteFile(path, html);
  const Opened page = Open(dir_, path);
  EXPECT_EQ(page.console, "");
  EXPECT_EQ(Marks(Svg(page.dom, "chart-importance"), "mark-rect"), 2u);
  EXPECT_EQ(Marks(Svg(page.dom, "chart-ablation"), "mark-rect"), 2u);
  // The lowest perplexity of the page's tile is now the first row's.
  const std::regex tile("Lowest perplexity</dt><dd>([0-9.]+)"), acted("data-acted=\"([0-9.]+)\"");
  std::smatch lowest, first;
  ASSERT_TRUE(std::regex_search(page.dom, lowest, tile));
  ASSERT_TRUE(std::regex_search(page.dom, first, acted));
  EXPECT_EQ(lowest[1], first[1]);
}

TEST_F(Browser, ASweepWithoutResultsSaysSoInWords) {
  CollectInput input;
  input.sweep_name = "nothing yet";
  CollectStage stage;
  stage.id = "0123456789abcdef";
  stage.kind = "train";
  stage.state = "waiting";
  stage.points = {{}};
  input.stages = {stage};
  Collect(input, dir_ / "results.h5");
  WriteReport(dir_ / "results.h5", dir_ / "report.html");
  const Opened page = Open(dir_, dir_ / "report.html");
  EXPECT_EQ(page.console, "");
  EXPECT_EQ(page.charts, "drawn");
  for (const char* words :
       {"No trial has a perplexity yet", "No pruning curve has been measured",
        "The importance of heads has not been measured", "No training step has been recorded",
        "No attempt has been recorded", "Nothing failed"}) {
    EXPECT_NE(page.dom.find(words), std::string::npos) << words;
  }
}

TEST_F(Browser, NumbersAreThereWithoutScripts) {
  MakeReport(SyntheticSweep{});
  const std::string html = FileSystem::Real().ReadFile(dir_ / "report.html");
  const std::string summary = FormatSummary(dir_ / "results.h5");
  const std::regex estimate("[0-9]+\\.[0-9]+ ± [0-9.]+");
  int found = 0;
  for (std::sregex_iterator it(summary.begin(), summary.end(), estimate), end; it != end && found < 5;
       ++it, ++found) {
    EXPECT_NE(html.find("\">" + it->str() + "</td>"), std::string::npos) << it->str();
  }
  EXPECT_EQ(found, 5);
  EXPECT_NE(html.find("killed by signal 9 &lt;out of &quot;memory&quot; &amp; patience&gt;"),
            std::string::npos);
  const std::string without_scripts = html.substr(0, html.find("<script"));
  for (const char* reference : {"src=\"", "href=\"http", "@import", "url("})
    EXPECT_EQ(without_scripts.find(reference), std::string::npos) << reference;
}

TEST(Report, SaysWhatToInstallWhenVegaIsMissing) {
  TempDir dir;
  CollectInput input;
  input.sweep_name = "x";
  Collect(input, dir / "results.h5");
  if (FileSystem::Real().Exists("/usr/share/javascript/vega/vega-util.min.js")) {
    WriteReport(dir / "results.h5", dir / "report.html");
    EXPECT_GT(FileSystem::Real().FileSize(dir / "report.html"), 300000);
  } else {
    try {
      WriteReport(dir / "results.h5", dir / "report.html");
      ADD_FAILURE() << "wrote a report without Vega";
    } catch (const Unsupported& error) {
      EXPECT_THAT(error.what(), HasSubstr("libjs-vega"));
    }
  }
}

}  // namespace
}  // namespace headsweep
