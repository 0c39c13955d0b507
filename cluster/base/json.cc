#include "cluster/base/json.h"

#include <nlohmann/json.hpp>

namespace headsweep {
namespace {

template <class Json>
Json Parse(std::string_view text) {
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

template <class Json>
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

nlohmann::json ParseJson(std::string_view text) { return Parse<nlohmann::json>(text); }

nlohmann::ordered_json ParseOrderedJson(std::string_view text) { return Parse<nlohmann::ordered_json>(text); }

std::string DumpJson(const nlohmann::json& json, int indent) { return Dump(json, indent); }

std::string DumpJson(const nlohmann::ordered_json& json, int indent) { return Dump(json, indent); }

}  // namespace headsweep
