#include "cluster/doctor.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/doctor_checks.h"

namespace headsweep {
namespace {

struct Check {
  const char* subject;
  Finding (*run)(const DoctorContext&);
};

constexpr Check kChecks[] = {
    {"cores", CheckCores},
    {"instruction set", CheckInstructionSet},
    {"memory", CheckMemory},
    {"huge pages", CheckHugePages},
    {"gpus", CheckGpus},
    {"workspace", CheckWorkspace},
    {"free space", CheckFreeSpace},
    {"mpi", CheckMpi},
    {"root", CheckRoot},
    {"slurm", CheckSlurm},
    {"hdf5 tools", CheckHdf5Tools},
    {"report scripts", CheckVega},
    {"corpus kjv", CheckKingJames},
};

const char* Name(FindingLevel level) {
  switch (level) {
    case FindingLevel::kOk:
      return "ok";
    case FindingLevel::kNote:
      return "note";
    case FindingLevel::kProblem:
      return "problem";
  }
  return "problem";
}

int Count(const std::vector<Finding>& findings, FindingLevel level) {
  int count = 0;
  for (const Finding& finding : findings) count += finding.level == level;
  return count;
}

// Lines after the first are moved under it.
std::string Indent(const std::string& text, std::size_t columns) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result.append(columns, ' ');
  }
  return result;
}

}  // namespace

std::string DoctorContext::Environment(const char* name) const {
  const auto& environment = options.sources.environment;
  const char* value = environment ? environment(name) : std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<Finding> Diagnose(const DoctorOptions& options) {
  std::vector<Finding> findings;
  Topology machine;
  try {
    machine = DetectTopology(options.sources);
  } catch (const std::exception& error) {
    findings.push_back(
        {"topology", FindingLevel::kProblem, error.what(), "check /proc and /sys, and hwloc (run lstopo)"});
  }
  const DoctorContext context{options, machine};
  for (const Check& check : kChecks) {
    Finding finding;
    try {
      finding = check.run(context);
    } catch (const std::exception& error) {
      finding = {"", FindingLevel::kProblem, fmt::format("the check itself failed: {}", error.what()), ""};
    }
    finding.subject = check.subject;
    findings.push_back(std::move(finding));
  }
  return findings;
}

bool HasProblem(const std::vector<Finding>& findings) { return Count(findings, FindingLevel::kProblem) > 0; }

std::string FormatFindings(const std::vector<Finding>& findings) {
  constexpr std::size_t kTextColumn = 27;  // 9 for the level, 18 for the subject
  std::string report;
  for (const Finding& finding : findings) {
    report += fmt::format("{:<9}{:<18}{}\n", Name(finding.level), finding.subject,
                          Indent(finding.text, kTextColumn));
    if (!finding.remedy.empty())
      report += fmt::format("{:<{}}-> {}\n", "", kTextColumn, Indent(finding.remedy, kTextColumn + 3));
  }
  const int problems = Count(findings, FindingLevel::kProblem);
  const int notes = Count(findings, FindingLevel::kNote);
  report += fmt::format("{} problem{}, {} note{}.{}\n", problems, problems == 1 ? "" : "s", notes,
                        notes == 1 ? "" : "s", problems == 0 ? " Ready to run." : "");
  return report;
}

std::string FindingsToJson(const std::vector<Finding>& findings) {
  nlohmann::ordered_json json;
  json["findings"] = nlohmann::ordered_json::array();
  for (const Finding& finding : findings)
    json["findings"].push_back({{"subject", finding.subject},
                                {"level", Name(finding.level)},
                                {"text", finding.text},
                                {"remedy", finding.remedy}});
  json["problems"] = Count(findings, FindingLevel::kProblem);
  json["notes"] = Count(findings, FindingLevel::kNote);
  // Paths and program output may hold anything: broken UTF-8 is replaced, not thrown over.
  return DumpJson(json, 2) + "\n";
}

}  // namespace headsweep
