// Arena: one block of backend memory, planned before it is allocated. Usage: describe every buffer twice with the same
// code, first to measure (nullptr base), then to hand out. Nothing is freed before the whole arena is.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/backend.h"

namespace headsweep {

// Hands out 64-byte aligned pieces of [base, …); with base == nullptr it only counts. Never fails: the caller compares
// bytes() of the measuring pass with what it allocated.
class ArenaCursor {
 public:
  ArenaCursor(const Backend& backend, void* base) : element_bytes_(backend.element_bytes()), base_(base) {}

  Element* Elements(std::int64_t count) { return static_cast<Element*>(Take(count, element_bytes_)); }
  float* Floats(std::int64_t count) { return static_cast<float*>(Take(count, sizeof(float))); }
  std::int32_t* Ints(std::int64_t count) { return static_cast<std::int32_t*>(Take(count, sizeof(std::int32_t))); }
  template <class Value>
  Value* Values(std::int64_t count) { return static_cast<Value*>(Take(count, sizeof(Value))); }
  std::size_t bytes() const { return bytes_; }

 private:
  void* Take(std::int64_t count, std::size_t size) {
    void* piece = base_ == nullptr ? nullptr : static_cast<char*>(base_) + bytes_;
    bytes_ += (static_cast<std::size_t>(count) * size + 63) / 64 * 64;
    return piece;
  }

  std::size_t element_bytes_;
  void* base_;
  std::size_t bytes_ = 0;
};

}  // namespace headsweep
