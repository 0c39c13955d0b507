#include "trainer/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "cluster/base/errors.h"

namespace headsweep {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is written as it lies in memory");
static_assert(sizeof(float) == 4);

using nlohmann::json;

constexpr std::size_t kLengthBytes = 8;
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr const char* kMetadata = "__metadata__";

// Product of dims; -1 when it does not fit or a dimension is negative.
std::int64_t Product(const std::vector<std::int64_t>& dims) {
  std::int64_t product = 1;
  for (const std::int64_t dim : dims) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) return -1;
  }
  return product;
}

// Parses JSON and remembers whether an object on the first level named a key twice (json itself keeps the
// last).
json ParseStrict(const std::string& text, std::string& duplicate) {
  std::set<std::string> seen;
  const json::parser_callback_t callback = [&](int depth, json::parse_event_t event, json& parsed) {
    if (depth == 1 && event == json::parse_event_t::key && !seen.insert(parsed.get<std::string>()).second) {
      duplicate = parsed.get<std::string>();
    }
    return true;
  };
  return json::parse(text, callback);
}

}  // namespace

std::string FormatSafetensors(const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata) {
  json header = json::object();
  if (!metadata.empty()) header[kMetadata] = metadata;
  std::uint64_t offset = 0;
  for (const TensorView& tensor : tensors) {
    HEADSWEEP_CHECK(Product(tensor.dims) == static_cast<std::int64_t>(tensor.values.size()),
                    "tensor {} has {} values", tensor.name, tensor.values.size());
    HEADSWEEP_CHECK(tensor.name != kMetadata && !header.contains(tensor.name), "tensor {} twice",
                    tensor.name);
    const std::uint64_t end = offset + tensor.values.size_bytes();
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.dims}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');  // keeps the data aligned, as the format recommends

  std::string bytes;
  bytes.reserve(kLengthBytes + text.size() + offset);
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    bytes += static_cast<char>(static_cast<std::uint64_t>(text.size()) >> (8 * i) & 0xFF);
  }
  bytes += text;
  for (const TensorView& tensor : tensors) {
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size_bytes());
  }
  return bytes;
}

Safetensors::Safetensors(std::string bytes, const std::string& path) : bytes_(std::move(bytes)), path_(path) {
  if (bytes_.size() < kLengthBytes) Fail(fmt::format("only {} bytes long", bytes_.size()));
  std::uint64_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes_[i])) << (8 * i);
  }
  if (length > kMaxHeaderBytes || length > bytes_.size() - kLengthBytes) {
    Fail(fmt::format("header of {} bytes in a file of {}", length, bytes_.size()));
  }
  data_start_ = kLengthBytes + static_cast<std::size_t>(length);
  ParseHeader(bytes_.substr(kLengthBytes, static_cast<std::size_t>(length)));
  CheckCoverage();
}

void Safetensors::Fail(const std::string& reason) const {
  throw ConfigError(
      fmt::format("{} is not a sound safetensors file: {}; it is damaged or cut off", path_, reason));
}

void Safetensors::ParseHeader(const std::string& header) {
  try {
    std::string duplicate;
    const json parsed = ParseStrict(header, duplicate);
    if (!duplicate.empty()) Fail("tensor " + duplicate + " is named twice");
    if (!parsed.is_object()) Fail("the header is not a JSON object");
    for (const auto& [name, value] : parsed.items()) {
      if (name == kMetadata) {
        metadata_ = value.get<std::map<std::string, std::string>>();
        continue;
      }
      if (value.size() != 3) Fail("tensor " + name + " does not have exactly dtype, shape and data_offsets");
      if (value.at("dtype") != "F32")
        Fail(fmt::format("tensor {} is {}, not F32", name, value.at("dtype").dump()));
      for (const char* key : {"shape", "data_offsets"}) {
        const json& numbers = value.at(key);
        if (!numbers.is_array() || !std::all_of(numbers.begin(), numbers.end(),
                                                [](const json& n) { return n.is_number_unsigned(); })) {
          Fail(fmt::format("{} of tensor {} is not a list of counts", key, name));
        }
      }
      Entry entry;
      entry.dims = value.at("shape").get<std::vector<std::int64_t>>();
      const auto offsets = value.at("data_offsets").get<std::vector<std::uint64_t>>();
      if (offsets.size() != 2) Fail("data_offsets of tensor " + name + " are not two");
      entry.begin = offsets[0];
      entry.end = offsets[1];
      entries_.emplace(name, std::move(entry));
    }
  } catch (const json::exception& error) {
    Fail(std::string("the header does not parse (") + error.what() + ")");
  }
}

// Tensors must fill the data exactly: in order of offset each begins where the one before ended.
void Safetensors::CheckCoverage() const {
  std::vector<std::pair<const std::string*, const Entry*>> order;
  for (const auto& [name, entry] : entries_) order.emplace_back(&name, &entry);
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second->begin, a.second->end) < std::pair(b.second->begin, b.second->end);
  });
  std::uint64_t at = 0;
  for (const auto& [name, entry] : order) {
    const std::int64_t count = Product(entry->dims);
    if (entry->begin != at || entry->end < entry->begin)
      Fail("tensor " + *name + " leaves a hole or overlaps");
    if (count < 0 || (entry->end - entry->begin) / sizeof(float) != static_cast<std::uint64_t>(count) ||
        (entry->end - entry->begin) % sizeof(float) != 0) {
      Fail("the shape of tensor " + *name + " does not fit its bytes");
    }
    at = entry->end;
  }
  if (at != bytes_.size() - data_start_) {
    Fail(fmt::format("its tensors take {} bytes, but {} follow the header", at, bytes_.size() - data_start_));
  }
}

std::vector<std::string> Safetensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

const std::vector<std::int64_t>& Safetensors::dims(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) throw ConfigError(fmt::format("{} has no tensor {}", path_, name));
  return found->second.dims;
}

void Safetensors::Read(const std::string& name, const std::vector<std::int64_t>& expected,
                       std::span<float> out) const {
  if (dims(name) != expected) {
    throw ConfigError(fmt::format("{}: tensor {} has shape ({}), expected ({})", path_, name,
                                  fmt::join(dims(name), ", "), fmt::join(expected, ", ")));
  }
  const Entry& entry = entries_.at(name);
  HEADSWEEP_CHECK(out.size_bytes() == entry.end - entry.begin, "room for {} values of tensor {}", out.size(),
                  name);
  if (!out.empty()) std::memcpy(out.data(), bytes_.data() + data_start_ + entry.begin, out.size_bytes());
}

}  // namespace headsweep
