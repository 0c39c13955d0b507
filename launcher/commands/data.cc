#include <boost/program_options/value_semantic.hpp>

#include <iostream>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "data/corpus.h"
#include "launcher/commands/command.h"
#include "launcher/commands/run_options.h"
#include "launcher/nearest.h"
#include "launcher/workspace.h"

namespace headsweep {
namespace {

namespace po = boost::program_options;

nlohmann::json ToJson(const PreparedCorpus& corpus) {
  return {{"fingerprint", corpus.fingerprint},
          {"name", corpus.name},
          {"vocabulary", corpus.vocabulary},
          {"sentences",
           {{"train", corpus.train.sentences}, {"valid", corpus.valid.sentences}, {"test", corpus.test.sentences}}},
          {"directory", corpus.directory}};
}

void PrintPrepared(const PreparedCorpus& corpus) {
  std::cout << fmt::format("{} {}  {} pieces of vocabulary; sentences: {} train, {} valid, {} test\n  {}\n",
                           corpus.fingerprint, corpus.name, corpus.vocabulary, corpus.train.sentences,
                           corpus.valid.sentences, corpus.test.sentences, corpus.directory);
}

int Prepare(const Arguments& arguments, const Workspace& workspace) {
  if (arguments.positional.size() != 2)
    throw ConfigError("data prepare: name a corpus\nusage: headsweep data prepare CORPUS [options]");
  CorpusRequest request{.corpus = arguments.Positional(1), .vocabulary = arguments.Number("vocabulary")};
  if (request.corpus.find('/') != std::string::npos) request.corpus = AbsolutePath(request.corpus);
  const PreparedCorpus corpus = PrepareCorpus(request, workspace.DataRoot(), FileSystem::Real(),
                                              [](const std::string& phase) { std::cerr << phase << "\n"; });
  if (arguments.Has("json")) {
    std::cout << DumpJson(ToJson(corpus)) << "\n";
  } else {
    PrintPrepared(corpus);
  }
  return kExitDone;
}

std::vector<PreparedCorpus> PreparedIn(const Workspace& workspace) {
  std::vector<PreparedCorpus> corpora;
  const FileSystem& files = FileSystem::Real();
  for (const std::string& name : files.List(workspace.DataRoot())) {
    const std::string directory = JoinPath(workspace.DataRoot(), name);
    if (files.Exists(directory + "/corpus.json")) corpora.push_back(OpenPreparedCorpus(directory, files));
  }
  return corpora;
}

int ListJson(const Workspace& workspace) {
  nlohmann::json json = {{"known", nlohmann::json::array()}, {"prepared", nlohmann::json::array()}};
  for (const KnownCorpus& corpus : KnownCorpora())
    json["known"].push_back({{"name", corpus.name}, {"description", corpus.description}, {"package", corpus.package}});
  for (const PreparedCorpus& corpus : PreparedIn(workspace)) json["prepared"].push_back(ToJson(corpus));
  std::cout << DumpJson(json) << "\n";
  return kExitDone;
}

int List(const Workspace& workspace) {
  std::cout << "known corpora\n";
  for (const KnownCorpus& corpus : KnownCorpora())
    std::cout << fmt::format("  {:<8} {} (package {})\n", corpus.name, corpus.description, corpus.package);
  std::cout << "prepared in " << workspace.DataRoot() << "\n";
  const std::vector<PreparedCorpus> prepared = PreparedIn(workspace);
  for (const PreparedCorpus& corpus : prepared) PrintPrepared(corpus);
  if (prepared.empty()) std::cout << "  none yet\n";
  return kExitDone;
}

int RunData(const Arguments& arguments) {
  const Workspace workspace(arguments.Text("workspace"));
  const std::string action = arguments.Positional(0);
  if (action == "prepare") return Prepare(arguments, workspace);
  if (action == "list" && arguments.positional.size() == 1)
    return arguments.Has("json") ? ListJson(workspace) : List(workspace);
  const std::string nearest = NearestName(action, {"prepare", "list"});
  throw ConfigError(
      fmt::format("data: no action \"{}\"{}; there are: prepare CORPUS, list", action,
                  nearest.empty() || nearest == action ? "" : "; did you mean " + nearest + "?"));
}

}  // namespace

SubCommand MakeDataCommand() {
  SubCommand command{.name = "data",
                  .arguments = "prepare CORPUS | list",
                  .least = 1,
                  .most = 2,
                  .summary = "tokenises a text ahead of time, or lists the corpora",
                  .details =
                      "A corpus is a known name or the path (with a /) of a UTF-8 text, one sentence a line. "
                      "`run` prepares\n"
                      "what it needs by itself.\n\n"
                      "examples\n"
                      "  headsweep data list\n"
                      "  headsweep data prepare kjv --vocabulary 2000\n"
                      "  headsweep data prepare ./my-text.txt\n",
                  .run = RunData};
  AddWorkspaceOption(command);
  command.options.add_options()("vocabulary", po::value<int>()->default_value(4000)->value_name("N"),
                                "pieces of sub-words")(
      "json", po::bool_switch(),
      "for programs: a prepared corpus is {fingerprint, name, vocabulary, sentences, directory}; list: {known, prepared}");
  return command;
}

}  // namespace headsweep
