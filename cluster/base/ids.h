// Identifiers that must not be mixed up: each is a type of its own, so an Attempt never compiles as a Rank.
#pragma once

#include <compare>
#include <functional>
#include <string>
#include <utility>

namespace headsweep {

template <class Tag, class Value>
class Id {
 public:
  Id() = default;
  explicit Id(Value value) : value_(std::move(value)) {}
  const Value& value() const { return value_; }
  auto operator<=>(const Id&) const = default;

 private:
  Value value_{};
};

using StageId = Id<struct StageTag, std::string>;  // hash of a stage's canonical configuration, 16 hex digits
using Attempt = Id<struct AttemptTag, int>;        // counts from 1 within a stage; never reused
using NodeId = Id<struct NodeTag, int>;            // MPI rank of a node's agent

}  // namespace headsweep

template <class Tag, class Value>
struct std::hash<headsweep::Id<Tag, Value>> {
  std::size_t operator()(const headsweep::Id<Tag, Value>& id) const { return std::hash<Value>{}(id.value()); }
};
