#include "cluster/base/gpu_report.h"

#include <nlohmann/json.hpp>
#include <sstream>

#include "cluster/base/json.h"

namespace headsweep {
namespace {

using nlohmann::ordered_json;

GpuDevice DeviceFrom(const ordered_json& json) {
  GpuDevice device;
  device.index = json.at("index").get<int>();
  device.name = json.at("name").get<std::string>();
  device.memory_bytes = json.at("memory_bytes").get<std::int64_t>();
  device.free_bytes = json.at("free_bytes").get<std::int64_t>();
  device.compute_capability = json.at("compute_capability").get<std::string>();
  device.uuid = json.at("uuid").get<std::string>();
  device.pci_bus_id = json.at("pci_bus_id").get<std::string>();
  device.mig = json.at("mig").get<bool>();
  return device;
}

GpuReport ReportFrom(const ordered_json& json) {
  GpuReport report;
  report.cuda_build = json.at("cuda_build").get<bool>();
  report.runtime = json.at("runtime").get<std::string>();
  report.driver = json.at("driver").get<std::string>();
  for (const ordered_json& device : json.at("devices")) report.devices.push_back(DeviceFrom(device));
  if (const ordered_json& problem = json.at("problem"); !problem.is_null())
    report.problem =
        GpuProblem{problem.at("code").get<std::string>(), problem.at("message").get<std::string>(),
                   problem.at("remedy").get<std::string>()};
  return report;
}

}  // namespace

std::string ToJson(const GpuReport& report) {
  ordered_json devices = ordered_json::array();
  for (const GpuDevice& device : report.devices)
    devices.push_back({{"index", device.index},
                       {"name", device.name},
                       {"memory_bytes", device.memory_bytes},
                       {"free_bytes", device.free_bytes},
                       {"compute_capability", device.compute_capability},
                       {"uuid", device.uuid},
                       {"pci_bus_id", device.pci_bus_id},
                       {"mig", device.mig}});
  ordered_json json = {{"cuda_build", report.cuda_build},
                       {"runtime", report.runtime},
                       {"driver", report.driver},
                       {"devices", std::move(devices)},
                       {"problem", nullptr}};
  if (report.problem)
    json["problem"] = {{"code", report.problem->code},
                       {"message", report.problem->message},
                       {"remedy", report.problem->remedy}};
  return DumpJson(json);
}

std::optional<GpuReport> FindGpuReport(const std::string& output) {
  std::istringstream lines(output);
  std::optional<GpuReport> found;
  for (std::string line; std::getline(lines, line);) {
    const ordered_json json = ParseOrderedJson(line);
    if (!json.is_object()) continue;
    try {
      found = ReportFrom(json);
    } catch (const ordered_json::exception&) {
      continue;  // another program's object, or one of another version
    }
  }
  return found;
}

}  // namespace headsweep
