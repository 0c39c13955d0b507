#include "launcher/control_channel.h"

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "cluster/base/json.h"
#include "launcher/messages.h"

namespace headsweep {

void LineParser::Feed(std::string_view bytes, const Receiver& receiver) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    if (newline == std::string_view::npos) {
      if (!skipping_ && buffer_.size() + bytes.size() > kLongestLine) {
        ++bad_lines_;
        skipping_ = true;
        buffer_.clear();
      }
      if (!skipping_) buffer_ += bytes;
      return;
    }
    const std::string_view rest = bytes.substr(0, newline);
    bytes.remove_prefix(newline + 1);
    if (skipping_) {
      skipping_ = false;
    } else if (buffer_.empty()) {
      Line(rest, receiver);
    } else {
      buffer_ += rest;
      Line(buffer_, receiver);
    }
    buffer_.clear();
  }
}

void LineParser::Line(std::string_view line, const Receiver& receiver) {
  if (line.empty()) return;
  const nlohmann::json message = ParseJson(line);
  if (message.is_object()) {
    receiver(message);
  } else {
    ++bad_lines_;
  }
}

ControlChannel::ControlChannel(boost::asio::io_context& loop, int descriptor, LineParser::Receiver receiver)
    : stream_(loop, descriptor), receiver_(std::move(receiver)) {
  WaitForBytes();
}

void ControlChannel::WaitForBytes() {
  // Only readiness is asked of asio; the bytes are read by ReadSome, so that DrainAndClose misses none.
  stream_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                     [this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                       if (error || alive.expired() || !stream_.is_open()) return;
                       if (ReadSome(64 << 10)) WaitForBytes();
                     });
}

bool ControlChannel::ReadSome(std::size_t limit) {
  std::array<char, 16384> buffer;
  for (std::size_t total = 0; total < limit;) {
    const ssize_t got = ::read(stream_.native_handle(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    total += static_cast<std::size_t>(got);
    parser_.Feed({buffer.data(), static_cast<std::size_t>(got)}, receiver_);
  }
  return true;
}

void ControlChannel::Send(const nlohmann::json& message) {
  if (!stream_.is_open()) return;
  unsent_ += DumpJson(message) + "\n";
  if (!waits_for_room_) WriteSome();
}

void ControlChannel::WriteSome() {
  while (!unsent_.empty()) {
    const ssize_t sent =
        ::send(stream_.native_handle(), unsent_.data(), unsent_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      unsent_.erase(0, static_cast<std::size_t>(sent));
    } else if (sent < 0 && errno == EAGAIN) {
      break;
    } else if (sent < 0 && errno != EINTR) {
      unsent_.clear();  // the trainer is gone, or going
    }
  }
  waits_for_room_ = !unsent_.empty();
  if (!waits_for_room_) return;
  stream_.async_wait(boost::asio::posix::stream_descriptor::wait_write,
                     [this, alive = std::weak_ptr<int>(alive_)](const boost::system::error_code& error) {
                       if (error || alive.expired() || !stream_.is_open()) return;
                       WriteSome();
                     });
}

void ControlChannel::DrainAndClose() {
  // What a socket buffer can hold, with room; a flood from a living grandchild ends here.
  ReadSome(16 << 20);
  boost::system::error_code ignored;
  stream_.close(ignored);
}

}  // namespace headsweep
