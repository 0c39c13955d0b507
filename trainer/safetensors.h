// safetensors files of float32 tensors, in memory: 8 bytes little-endian header length, a JSON header, the
// data. Format: https://huggingface.co/docs/safetensors (header at most 100 MB, tensors without holes or
// overlaps). The reader trusts nothing: every length, type, shape and offset is checked before a value is
// touched.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace headsweep {

struct TensorView {
  std::string name;
  std::vector<std::int64_t> dims;
  std::span<const float> values;  // as many as the product of dims (checked)
};

// The bytes of a file. metadata goes to "__metadata__".
std::string FormatSafetensors(const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata);

// A file's tensors; keeps the bytes. path is only for messages.
class Safetensors {
 public:
  // Throws ConfigError (path, what is wrong) for anything that is not exactly such a file.
  Safetensors(std::string bytes, const std::string& path);

  std::vector<std::string> names() const;  // sorted
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::vector<std::int64_t>& dims(const std::string& name) const;
  // Copies a tensor out. Throws ConfigError when it is missing or its shape is not dims.
  void Read(const std::string& name, const std::vector<std::int64_t>& dims, std::span<float> out) const;

 private:
  struct Entry {
    std::vector<std::int64_t> dims;
    std::uint64_t begin = 0, end = 0;  // bytes, counted from the data's start
  };
  [[noreturn]] void Fail(const std::string& reason) const;
  void ParseHeader(const std::string& header);
  void CheckCoverage() const;

  std::string bytes_, path_;
  std::size_t data_start_ = 0;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace headsweep
