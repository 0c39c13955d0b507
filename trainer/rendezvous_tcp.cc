// A key-value store at rank 0, reached over TCP. One request a line: {"set": key, "value": text} is not
// answered,
// {"get": key} is answered by {"value": text} once the key is there.
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "trainer/rendezvous.h"

namespace headsweep {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kRetry(20);
constexpr std::size_t kLongestLine = 1
                                     << 20;  // addresses of a few thousand peers; more is no request of ours

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

void SendAll(int fd, const std::string& bytes) {
  for (std::size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(fd, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n > 0) sent += static_cast<std::size_t>(n);
    if (n < 0 && errno != EINTR) return;  // a peer that is gone is noticed when it is read
  }
}

// Appends what has arrived; false at the end of the stream.
bool Receive(int fd, std::string& received) {
  char bytes[16384];
  const ssize_t n = ::recv(fd, bytes, sizeof bytes, 0);
  if (n < 0) return errno == EINTR || errno == EAGAIN;
  received.append(bytes, static_cast<std::size_t>(n));
  return n > 0 && received.size() < kLongestLine;
}

class Addresses {
 public:
  Addresses(const std::string& host, int port) {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &first_);
    if (error != 0) throw ConfigError(fmt::format("MASTER_ADDR={}: {}", host, ::gai_strerror(error)));
  }
  ~Addresses() { ::freeaddrinfo(first_); }
  Addresses(const Addresses&) = delete;
  Addresses& operator=(const Addresses&) = delete;
  const addrinfo* first() const { return first_; }

 private:
  addrinfo* first_ = nullptr;
};

// Rank 0: the keys, and a thread that serves them.
class ServingRendezvous final : public Rendezvous {
 public:
  ServingRendezvous(const std::string& host, int port) {
    const Addresses addresses(host, port);
    for (const addrinfo* a = addresses.first(); a != nullptr && listener_.get() < 0; a = a->ai_next) {
      Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
      const int yes = 1;
      ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      if (::bind(socket.get(), a->ai_addr, a->ai_addrlen) == 0 && ::listen(socket.get(), SOMAXCONN) == 0)
        listener_ = std::move(socket);
    }
    if (listener_.get() < 0)
      throw CommError(
          "this process", fmt::format("listen on MASTER_ADDR {} MASTER_PORT {}", host, port), 0,
          fmt::format("{}; MASTER_ADDR must be an address of the machine of rank 0, with a free port",
                      std::strerror(errno)));
    if (::pipe2(wake_, O_CLOEXEC) != 0) throw IoError("pipe", "rendezvous", errno);
    thread_ = std::thread([this] { Serve(); });
  }
  ~ServingRendezvous() override {
    ::close(wake_[1]);  // the thread sees the end of the pipe
    thread_.join();
    ::close(wake_[0]);
  }

  void Set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    SetLocked(key, value);
  }
  std::string Get(const std::string& key, double timeout_seconds) override {
    std::unique_lock lock(mutex_);
    const auto limit = std::chrono::duration<double>(timeout_seconds);
    if (!changed_.wait_for(lock, limit, [&] { return values_.contains(key); }))
      throw CommError("its peers", "wait for " + key, timeout_seconds,
                      "nobody came with it; were all processes of the trial started?");
    return values_.at(key);
  }

 private:
  struct Peer {
    Socket socket;
    std::string received;
  };

  void SetLocked(const std::string& key, const std::string& value) {
    values_[key] = value;
    const auto [begin, end] = waiting_.equal_range(key);
    for (auto waiter = begin; waiter != end; ++waiter) Answer(waiter->second, value);
    waiting_.erase(begin, end);
    changed_.notify_all();
  }
  static void Answer(int fd, const std::string& value) { SendAll(fd, json{{"value", value}}.dump() + "\n"); }

  void Serve() {
    std::list<Peer> peers;
    while (true) {
      std::vector<pollfd> watched = {{wake_[0], POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      for (const Peer& peer : peers) watched.push_back({peer.socket.get(), POLLIN, 0});
      if (::poll(watched.data(), watched.size(), -1) < 0) continue;  // EINTR
      if (watched[0].revents != 0) return;
      std::size_t i = 2;
      for (auto peer = peers.begin(); peer != peers.end(); ++i) {
        const bool lives = watched[i].revents == 0 || ServeOne(*peer);
        peer = lives ? std::next(peer) : Forget(peers, peer);
      }
      if (watched[1].revents != 0) {
        Socket accepted(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (accepted.get() >= 0) peers.push_back({std::move(accepted), ""});
      }
    }
  }
  std::list<Peer>::iterator Forget(std::list<Peer>& peers, std::list<Peer>::iterator peer) {
    const std::lock_guard lock(mutex_);
    std::erase_if(waiting_, [&](const auto& waiter) { return waiter.second == peer->socket.get(); });
    return peers.erase(peer);
  }

  bool ServeOne(Peer& peer) {
    if (!Receive(peer.socket.get(), peer.received)) return false;
    for (auto end = peer.received.find('\n'); end != std::string::npos; end = peer.received.find('\n')) {
      const json request = ParseJson(peer.received.substr(0, end));
      peer.received.erase(0, end + 1);
      if (!request.is_object()) return false;
      const std::lock_guard lock(mutex_);
      if (request.contains("set") && request.contains("value")) {
        SetLocked(request.value("set", ""), request.value("value", ""));
      } else if (const std::string key = request.value("get", ""); values_.contains(key)) {
        Answer(peer.socket.get(), values_.at(key));
      } else {
        waiting_.emplace(key, peer.socket.get());
      }
    }
    return true;
  }

  Socket listener_;
  int wake_[2] = {-1, -1};
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::multimap<std::string, int> waiting_;  // key -> socket of a peer that asked for it
  std::thread thread_;
};

class AskingRendezvous final : public Rendezvous {
 public:
  AskingRendezvous(const std::string& host, int port, double timeout_seconds)
      : server_(fmt::format("rank 0 at {}:{}", host, port)) {
    const Addresses addresses(host, port);
    const SystemClock clock;
    const double started = clock.Monotonic();
    while (true) {
      int error = 0;
      for (const addrinfo* a = addresses.first(); a != nullptr; a = a->ai_next) {
        Socket socket(::socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol));
        if (::connect(socket.get(), a->ai_addr, a->ai_addrlen) == 0) {
          socket_ = std::move(socket);
          return;
        }
        error = errno;
      }
      if (clock.Monotonic() - started > timeout_seconds)
        throw CommError(server_, "connect", clock.Monotonic() - started, std::strerror(error));
      std::this_thread::sleep_for(kRetry);  // rank 0 may not be there yet
    }
  }

  void Set(const std::string& key, const std::string& value) override {
    SendAll(socket_.get(), json{{"set", key}, {"value", value}}.dump() + "\n");
  }
  std::string Get(const std::string& key, double timeout_seconds) override {
    SendAll(socket_.get(), json{{"get", key}}.dump() + "\n");
    const SystemClock clock;
    const double started = clock.Monotonic();
    const auto failed = [&](const std::string& why) {
      return CommError(server_, "wait for " + key, clock.Monotonic() - started, why);
    };
    while (true) {
      if (const auto end = received_.find('\n'); end != std::string::npos) {
        const json answer = ParseJson(received_.substr(0, end));
        received_.erase(0, end + 1);
        if (!answer.is_object() || !answer.contains("value"))
          throw failed("what listens there is no headsweep-trainer");
        return answer.value("value", "");
      }
      const double left = timeout_seconds - (clock.Monotonic() - started);
      pollfd waiting = {socket_.get(), POLLIN, 0};
      if (left <= 0 || ::poll(&waiting, 1, static_cast<int>(left * 1000) + 1) == 0)
        throw failed("nobody came with it; were all processes of the trial started?");
      if (!Receive(socket_.get(), received_)) throw failed("rank 0 is gone");
    }
  }

 private:
  const std::string server_;
  Socket socket_;
  std::string received_;
};

}  // namespace

std::unique_ptr<Rendezvous> MakeTcpRendezvous(int rank, const std::string& host, int port,
                                              double timeout_seconds) {
  if (rank == 0) return std::make_unique<ServingRendezvous>(host, port);
  return std::make_unique<AskingRendezvous>(host, port, timeout_seconds);
}

}  // namespace headsweep
