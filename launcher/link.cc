#include "launcher/link.h"

#include <boost/asio/post.hpp>

#include "cluster/base/json.h"
#include "launcher/messages.h"

namespace headsweep {
namespace {

// One direction. Shared by both ends, so that a message under way outlives either.
struct Pipe {
  Link::Receiver receiver;
};

class LoopbackLink final : public Link {
 public:
  LoopbackLink(boost::asio::io_context& loop, NodeId self, NodeId peer, std::shared_ptr<Pipe> in,
               std::shared_ptr<Pipe> out)
      : loop_(loop), self_(self), peer_(peer), in_(std::move(in)), out_(std::move(out)) {}
  ~LoopbackLink() override { in_->receiver = nullptr; }

  std::vector<NodeId> peers() const override { return {peer_}; }
  void Start(Receiver receiver) override { in_->receiver = std::move(receiver); }

  void Send(NodeId to, const nlohmann::json& message) override {
    if (to != peer_) return;
    // As text, as over MPI: what cannot be carried there shall not work here.
    boost::asio::post(loop_, [pipe = out_, from = self_, text = DumpJson(message)] {
      if (pipe->receiver) pipe->receiver(from, nlohmann::json::parse(text));
    });
  }
  void Abandon(NodeId) override {}  // nothing is ever waited for

 private:
  boost::asio::io_context& loop_;
  NodeId self_, peer_;
  std::shared_ptr<Pipe> in_, out_;
};

}  // namespace

std::pair<std::unique_ptr<Link>, std::unique_ptr<Link>> MakeLoopback(boost::asio::io_context& loop, NodeId a,
                                                                     NodeId b) {
  auto to_a = std::make_shared<Pipe>(), to_b = std::make_shared<Pipe>();
  return {std::make_unique<LoopbackLink>(loop, a, b, to_a, to_b),
          std::make_unique<LoopbackLink>(loop, b, a, to_b, to_a)};
}

}  // namespace headsweep
