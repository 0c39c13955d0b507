// The agent's side of one trainer's control channel (trainer/control_protocol.h): bytes in, whole messages
// out. A trainer may be wrong or dying: lines that are no JSON object, or too long, are counted and skipped,
// never fatal.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace headsweep {

// Cuts a stream of bytes into lines and parses them.
class LineParser {
 public:
  using Receiver = std::function<void(const nlohmann::json& message)>;
  // Longer lines are skipped up to their end: a summary is a few hundred bytes, so this one is garbage.
  static constexpr std::size_t kLongestLine = 1 << 20;

  void Feed(std::string_view bytes, const Receiver& receiver);
  std::int64_t bad_lines() const { return bad_lines_; }

 private:
  void Line(std::string_view line, const Receiver& receiver);
  std::string buffer_;  // of an unfinished line
  bool skipping_ = false;
  std::int64_t bad_lines_ = 0;
};

class ControlChannel {
 public:
  // Takes over the descriptor (non-blocking). The receiver is called from the loop, and from Drain.
  ControlChannel(boost::asio::io_context& loop, int descriptor, LineParser::Receiver receiver);
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  // Returns at once; what a trainer does not read yet is kept for it. One that never reads is left to its
  // deadline.
  void Send(const nlohmann::json& message);
  // Hands on what has arrived so far and closes, although a grandchild may hold the other end open.
  void DrainAndClose();
  std::int64_t bad_lines() const { return parser_.bad_lines(); }

 private:
  void WaitForBytes();
  // Reads at most `limit` bytes; false at the end of the stream.
  bool ReadSome(std::size_t limit);
  void WriteSome();
  boost::asio::posix::stream_descriptor stream_;
  LineParser parser_;
  LineParser::Receiver receiver_;
  std::string unsent_;
  bool waits_for_room_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);  // a readiness that is queued already outlives this
};

}  // namespace headsweep
