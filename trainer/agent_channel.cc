#include "trainer/agent_channel.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <nlohmann/json.hpp>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"
#include "trainer/control_protocol.h"

namespace headsweep {
namespace {

// Addresses of all peers in hexadecimal digits are the longest; a line beyond this is no message.
constexpr std::size_t kLongestLine = 4 << 20;

class ChannelRendezvous final : public Rendezvous {
 public:
  explicit ChannelRendezvous(AgentChannel& channel) : channel_(channel) {}
  void Set(const std::string& key, const std::string& value) override {
    own_[key] = value;
    channel_.Send({{control::kType, control::kRendezvous}, {"key", key}, {"value", value}});
  }
  std::string Get(const std::string& key, double timeout_seconds) override {
    if (const auto own = own_.find(key); own != own_.end()) return own->second;
    const SystemClock clock;
    const double started = clock.Monotonic();
    while (true) {
      if (const auto found = channel_.published().find(key); found != channel_.published().end())
        return found->second;
      const double left = timeout_seconds - (clock.Monotonic() - started);
      if (left <= 0 || channel_.stop_requested())
        throw CommError("its peers", "wait for " + key, clock.Monotonic() - started,
                        left <= 0 ? "nobody came with it" : "asked to stop before the trial began");
      channel_.WaitAndPoll(std::min(left, 0.1));
    }
  }

 private:
  AgentChannel& channel_;
  std::map<std::string, std::string> own_;
};

}  // namespace

AgentChannel::AgentChannel(int fd, std::atomic<bool>& stop) : fd_(fd), stop_(stop) {
  const int flags = ::fcntl(fd, F_GETFL);
  if (flags < 0 || ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 || ::fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
    throw IoError("open", fmt::format("--control-fd {}", fd), errno, "give the number of an open descriptor");
  }
}

AgentChannel::~AgentChannel() { ::close(fd_); }

void AgentChannel::GiveUp() {
  if (!gone_) LogWarning("the agent at the other end of the control channel is gone: stopping");
  gone_ = true;
  stop_ = true;
}

void AgentChannel::Poll() {
  char bytes[4096];
  while (!gone_) {
    const ssize_t n = ::read(fd_, bytes, sizeof bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n <= 0) return GiveUp();
    received_.append(bytes, static_cast<std::size_t>(n));
    for (auto end = received_.find('\n'); end != std::string::npos; end = received_.find('\n')) {
      Receive(received_.substr(0, end));
      received_.erase(0, end + 1);
    }
    if (received_.size() > kLongestLine) received_.clear();
  }
}

void AgentChannel::WaitAndPoll(double seconds) {
  struct pollfd waiting = {fd_, POLLIN, 0};
  ::poll(&waiting, 1, static_cast<int>(seconds * 1000) + 1);
  Poll();
}

void AgentChannel::Receive(const std::string& line) {
  const nlohmann::json message = ParseJson(line);
  const nlohmann::json type = message.is_object() ? message.value(control::kType, nlohmann::json()) : nullptr;
  if (type == control::kStop) {
    LogInfo("asked to stop");
    stop_ = true;
  } else if (type == control::kRendezvous && message.value("key", nlohmann::json()).is_string() &&
             message.value("value", nlohmann::json()).is_string()) {
    published_[message["key"]] = message["value"];
  } else {
    LogWarning("the agent said something that is no request: {:.200}", line);
  }
}

void AgentChannel::Send(const nlohmann::json& message) {
  if (gone_) return;
  const std::string line = DumpJson(message) + "\n";
  const SystemClock clock;
  const double deadline = clock.Monotonic() + kSendSeconds;
  std::size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t n = ::write(fd_, line.data() + sent, line.size() - sent);
    if (n >= 0) {
      sent += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      const double left = deadline - clock.Monotonic();
      if (left <= 0) return GiveUp();
      struct pollfd waiting = {fd_, POLLOUT, 0};
      ::poll(&waiting, 1, static_cast<int>(left * 1000) + 1);
    } else if (errno != EINTR) {
      return GiveUp();
    }
  }
}

std::unique_ptr<Rendezvous> MakeChannelRendezvous(AgentChannel& channel) {
  return std::make_unique<ChannelRendezvous>(channel);
}

}  // namespace headsweep
