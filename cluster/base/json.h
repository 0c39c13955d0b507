// JSON text at the program's borders: files, messages and answers of other programs, which may hold anything.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace headsweep {

// What the text holds; a value whose is_object(), is_array() … are all false (it is_discarded()) if the text is no
// JSON. Never throws over the text.
nlohmann::json ParseJson(std::string_view text);
nlohmann::ordered_json ParseOrderedJson(std::string_view text);

// As text, on one line or with indent > 0 columns a level; no newline at the end. Bytes that are not UTF-8 become
// U+FFFD: nothing is thrown over them.
std::string DumpJson(const nlohmann::json& json, int indent = -1);
std::string DumpJson(const nlohmann::ordered_json& json, int indent = -1);

}  // namespace headsweep
