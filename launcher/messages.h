// What coordinator and agents say to each other: JSON objects, one a message, "type" first. Carried by a
// Link. Messages about an attempt hold {stage, attempt}; one whose attempt is not the current one changes
// nothing (fencing).
//
// coordinator -> agent
//   welcome     {workspace, sweep, threads, device} first of all; the agent answers with join. device: of the
//               trials, "cuda" (slots are GPUs) or "cpu"
//   start       {stage, attempt, epoch, ranks: [rank], slots: [index], world, directory, fence, taken_from}
//               epoch: of the join that it answers; one of an earlier join is not obeyed.
//               trials/<id>/config.toml is written. The node of rank 0 first (directory 0: it picks the attempt's
//               folder); the others of a gang once that one has said launched. fence: of a shared sweep, what the
//               attempt seals through; taken_from: the launcher that had the trial and is gone, or ""
//   stop        {stage, attempt}                   checkpoint and leave
//   kill        {stage, attempt, reason}           reason: attempt_outcome.h, or the core's
//               what is over already is answered by ended, again: perhaps it was lost
//   rendezvous  {stage, attempt, key, value}       for the trial's processes on that node; see trainer/collective.h
//   alive       {}                                 answer to the agent's alive
//   lost        {epoch}                            answer to the alive of a node that was given up: it kills what runs there, and
//               joins again. epoch: of its last join that was heard
//   end         {clean}                            leave; clean: every rank lives, so MPI_Finalize is safe
// agent -> coordinator
//   join        {host, slots, device_bytes, problem, epoch}  device_bytes: SlotPool::AddNode. No slots: problem says why, and what to
//               do. epoch: 1, then one more each time that the node comes back after a silence; nothing runs there then
//   alive       {}                                 every second
//   progress, evaluation and checkpoint are what rank 0 says
//   progress    {stage, attempt, phase, step, steps, loss, tokens_per_second}
//   evaluation  {stage, attempt, step, split, nll, perplexity_per_word}
//   checkpoint  {stage, attempt, step}
//   launched    {stage, attempt, directory}        rank 0 runs, of a gang over several nodes
//   rendezvous  {stage, attempt, key, value}       of one of the trial's processes
//   ended       {stage, attempt, rank, outcome, cause, message, summary}
//   signal      {name}                             this rank was asked to stop (scancel, time limit)
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "cluster/base/json.h"

namespace headsweep::message {

inline constexpr const char* kType = "type";
inline constexpr const char* kWelcome = "welcome";
inline constexpr const char* kStart = "start";
inline constexpr const char* kStop = "stop";
inline constexpr const char* kKill = "kill";
inline constexpr const char* kAlive = "alive";
inline constexpr const char* kLost = "lost";
inline constexpr const char* kEnd = "end";
inline constexpr const char* kJoin = "join";
inline constexpr const char* kProgress = "progress";
inline constexpr const char* kEvaluation = "evaluation";
inline constexpr const char* kCheckpoint = "checkpoint";
inline constexpr const char* kLaunched = "launched";
inline constexpr const char* kRendezvous = "rendezvous";
inline constexpr const char* kEnded = "ended";
inline constexpr const char* kSignal = "signal";

// Fields of a message from a program that may be wrong: a missing field, or one of another type, reads as the
// fallback.
inline std::string Text(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  if (found == message.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  return found->is_null() ? "" : DumpJson(*found);
}
inline std::int64_t Integer(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_number() ? found->get<std::int64_t>() : 0;
}
inline double Number(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_number() ? found->get<double>() : 0.0;
}
inline std::vector<std::int64_t> Integers(const nlohmann::json& message, const char* key) {
  std::vector<std::int64_t> numbers;
  const auto found = message.find(key);
  if (found == message.end() || !found->is_array()) return numbers;
  for (const nlohmann::json& number : *found) numbers.push_back(number.is_number() ? number.get<std::int64_t>() : 0);
  return numbers;
}
inline bool Flag(const nlohmann::json& message, const char* key) {
  const auto found = message.find(key);
  return found != message.end() && found->is_boolean() && found->get<bool>();
}

}  // namespace headsweep::message
