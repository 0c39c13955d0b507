// The page: answer first, then each question with its chart, its caption in words and its table; at the end
// what ran where.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "results/charts.h"
#include "results/findings.h"
#include "results/html.h"
#include "results/report_assets.h"
#include "results/report_tables.h"
#include "results/vega.h"

namespace headsweep {
namespace report {
namespace {

using nlohmann::json;

// "55 ± 5 %" is not broken over two lines.
std::string KeepNumbersTogether(std::string text) {
  for (const auto& [loose, tight] : {std::pair{" ± ", "\u00A0±\u00A0"}, std::pair{" %", "\u00A0%"}}) {
    for (std::size_t at = 0; (at = text.find(loose, at)) != std::string::npos;) {
      text.replace(at, std::string_view(loose).size(), tight);
    }
  }
  return text;
}

class Page {
 public:
  explicit Page(const ResultsFile& results)
      : results_(results),
        names_(TrialNames(results)),
        quality_(FindQuality(results)),
        pruning_(FindPruning(results, quality_)),
        heads_(ReadHeads(results)) {}

  std::string Html() {
    std::string body = Header() + "<main>\n" + QualitySection() + PruningSection() + HeadsSection() +
                       TrainingSection() + DevicesSection() + RunsSection() + ProvenanceSection() +
                       "</main>\n";
    // No request may leave the page, whatever a name in a sweep holds.
    return fmt::format(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
        "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
        "'unsafe-inline'; style-src "
        "'unsafe-inline'; img-src data:\">\n"
        "<title>{} – headsweep</title>\n<style>\n{}</style>\n</head>\n<body>\n{}"
        "<footer>Written by headsweep from results.h5, which holds every number of this page. The page needs "
        "no "
        "network.</footer>\n"
        "<script type=\"application/json\" "
        "id=\"charts\">{}</script>\n<script>\n{}</script>\n<script>\n{}</script>\n"
        "</body>\n</html>\n",
        Escape(results_.sweep.name), Asset("page.css"), body, ScriptJson(specs_), VegaScript(),
        Asset("page.js"));
  }

 private:
  // A figure with a chart and its caption, or the sentence that says why there is none.
  std::string Figure(const std::string& id, Chart chart, const std::string& caption) {
    if (chart.spec.is_null()) return fmt::format("<p class=\"none\">{}</p>\n", Escape(chart.nothing));
    specs_[id] = std::move(chart.spec);
    return fmt::format(
        "<figure><div class=\"chart\" id=\"{0}\"></div><figcaption>{1}{2}</figcaption></figure>\n", id,
        Escape(caption), Escape(chart.note));
  }

  static std::string Section(const std::string& id, const std::string& title, const std::string& content) {
    return fmt::format("<section id=\"{}\">\n<h2>{}</h2>\n{}</section>\n", id, Escape(title), content);
  }

  static std::string Tile(const std::string& name, const std::string& value, const std::string& more) {
    return fmt::format("<div><dt>{}</dt><dd>{}<small>{}</small></dd></div>\n", Escape(name), Escape(value),
                       Escape(more));
  }

  std::string Tiles() const {
    int finished = 0, prunes = 0, pruned = 0;
    double best = std::nan(""), training = 0;
    for (const TrialRow& trial : results_.trials) {
      finished += trial.state == "finished";
      if (std::isfinite(trial.train_seconds)) training += trial.train_seconds;
      const double score = quality_.split == "test" ? trial.test_perplexity : trial.valid_perplexity;
      if (std::isfinite(score) && !(score >= best)) best = score;
    }
    double first = 0, last = 0;
    for (const AttemptRecord& attempt : results_.attempts) {
      if (attempt.started_at > 0 && (first == 0 || attempt.started_at < first)) first = attempt.started_at;
      last = std::max(last, attempt.finished_at);
    }
    for (const StageRow& stage : results_.stages) {
      if (stage.kind == "train") continue;
      ++prunes;
      pruned += !stage.outcome.empty();
    }
    std::string others;
    for (const char* state : {"diverged", "early-stopped", "failed", "skipped", "running", "ready", "waiting"}) {
      const auto count = std::count_if(results_.trials.begin(), results_.trials.end(),
                                       [&](const TrialRow& t) { return t.state == state; });
      if (count > 0) others += fmt::format("{}{} {}", others.empty() ? "" : ", ", count, state);
    }
    return "<dl class=\"tiles\">\n" +
           Tile("Trials finished", fmt::format("{} of {}", finished, results_.trials.size()), others) +
           Tile("Pruning curves", fmt::format("{} of {}", pruned, prunes), "") +
           Tile("Lowest perplexity", std::isfinite(best) ? fmt::format("{:.2f}", best) : "–",
                quality_.split + " split, per word, one trial") +
           Tile("Time", last > first && first > 0 ? FormatSeconds(last - first) : "–",
                FormatSeconds(training) + " of training") +
           "</dl>\n";
  }

  std::string Header() const {
    std::string answer;
    for (const std::string& sentence : Answer(results_, quality_, pruning_)) {
      answer += fmt::format("<p>{}</p>\n", Escape(KeepNumbersTogether(sentence)));
    }
    double last = 0;
    for (const AttemptRecord& attempt : results_.attempts) last = std::max(last, attempt.finished_at);
    return fmt::format(
        "<header class=\"top\">\n<p class=\"kicker\">headsweep report{}</p>\n<h1>{}</h1>\n<div "
        "class=\"answer\">{}</div>\n{}"
        "<nav><a href=\"#quality\">Quality</a> <a href=\"#pruning\">Pruning</a> <a href=\"#heads\">Single "
        "heads</a> "
        "<a href=\"#training\">Training</a> <a href=\"#devices\">Devices</a> <a href=\"#runs\">Trials</a> "
        "<a href=\"#provenance\">Provenance</a></nav>\n</header>\n",
        last > 0 ? " · last work " + FormatTime(last) : "", Escape(results_.sweep.name), answer, Tiles());
  }

  std::string QualitySection() {
    const std::string x = quality_.x_name.empty() ? "" : " against " + quality_.x_name;
    return Section(
        "quality", "How many heads, and of what size?",
        Figure("chart-quality", QualityChart(quality_),
               fmt::format(
                   "Perplexity per word{} on the {} split; lower is better. Bands and bars: 95 % confidence "
                   "interval of the mean over seeds (Student's t); a point without one has a single seed.",
                   x, quality_.split == "test" ? "test" : "validation")) +
            (quality_.lines.empty()
                 ? ""
                 : QualityTable(quality_) + Details("All configurations with parameters and seeds",
                                                    QualityDetailTable(quality_))));
  }

  std::string PruningSection() {
    std::string content = Figure("chart-pruning", PruningChart(pruning_),
                                 "Test perplexity after removing heads in each order, without retraining, "
                                 "divided by the whole model's. Bands: 95 % "
                                 "confidence interval over models, where there are three or more; the seeds "
                                 "of a random order are averaged "
                                 "within a model first. Dashed: 5 % more "
                                 "perplexity.");
    content += RemovableTable(pruning_);
    if (!pruning_.groups.empty())
      content += Details("Every point of every curve", PruningDetailTable(pruning_));
    content += "<h3>Speed</h3>\n" + Figure("chart-speed", SpeedChart(pruning_),
                                           "Duration of the same evaluation with the whole model, divided by "
                                           "its duration with the removed heads really "
                                           "cut out of the weights; mean over orders and seeds.");
    return Section("pruning", "How many heads can go?", content);
  }

  std::string HeadsSection() {
    std::string content;
    if (!heads_.trials.empty()) {
      content +=
          "<div class=\"controls\"><label>Trial <select data-signal=\"trial\" data-charts=\"chart-importance "
          "chart-importance-change chart-ablation\">";
      for (const std::string& trial : heads_.trials) {
        const auto name = names_.find(trial);
        content += fmt::format("<option value=\"{}\">{}</option>", Escape(trial),
                               Escape(name == names_.end() ? trial : name->second));
      }
      content +=
          "</select></label> <label>Measure <select data-signal=\"measure\" data-charts=\"chart-importance "
          "chart-importance-change\"><option value=\"per_example\">importance per example</option><option "
          "value=\"per_token\">importance per token</option><option value=\"normalized\">score used by "
          "orders</option><option value=\"magnitude\">weight magnitude</option></select></label></div>\n";
    }
    content += Figure("chart-importance", ImportanceChart(heads_),
                      "Importance of each head at the trial's last evaluation: mean of |∂loss/∂gate| "
                      "(Michel, Levy and Neubig 2019).");
    content += "<h3>During training</h3>\n" + Figure("chart-importance-change", ImportanceChangeChart(heads_),
                                                     "The same measure at each evaluation of the training.");
    content +=
        "<h3>One head switched off</h3>\n" + Figure("chart-ablation", AblationChart(heads_),
                                                    "Increase of the loss when one head is switched off "
                                                    "alone. Below zero the model is better without it.");
    const std::string table = HeadsTable(heads_, names_);
    if (!table.empty()) content += Details("The heads of the best trial in numbers", table);
    return Section("heads", "Which heads matter?", content);
  }

  std::string TrainingSection() {
    return Section("training", "Training",
                   Figure("chart-training", TrainingChart(results_, quality_, names_),
                          "Training loss of each trial, averaged over neighbouring steps. Point at a line to "
                          "see which trial it is."));
  }

  std::string DevicesSection() {
    return Section("devices", "What the devices did",
                   Figure("chart-timeline", TimelineChart(results_, names_), "One bar an attempt.") +
                       DevicesTable(results_));
  }

  std::string RunsSection() {
    std::string content = results_.trials.empty() ? "<p class=\"none\">The sweep has no trials.</p>\n"
                                                  : RunsTable(results_, names_);
    const std::string failures = FailuresTable(results_, names_);
    content += "<h3 id=\"failures\">What failed, and why</h3>\n" +
               (failures.empty() ? std::string("<p class=\"none\">Nothing failed.</p>\n") : failures) +
               ProblemsTable(results_);
    return Section("runs", "Trials", content);
  }

  std::string ProvenanceSection() const {
    const std::string table = ProvenanceTable(results_);
    return Section(
        "provenance", "Provenance",
        (table.empty()
             ? "<p class=\"none\">No stage has a result, so nothing is known of where it came from.</p>\n"
             : table) +
            "<h3>The sweep file</h3>\n<pre>" + Escape(results_.sweep.toml) + "</pre>\n");
  }

  const ResultsFile& results_;
  const Names names_;
  const Quality quality_;
  const Pruning pruning_;
  const Heads heads_;
  json specs_ = json::object();
};

}  // namespace
}  // namespace report

void WriteReport(const std::string& results_path, const std::string& report_path) {
  const ResultsFile results(results_path);
  WriteFileDurably(FileSystem::Real(), report_path, report::Page(results).Html());
}

}  // namespace headsweep
