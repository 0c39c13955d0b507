#include "launcher/mpi_link.h"

#include <mpi.h>

#include <boost/asio/steady_timer.hpp>

#include <chrono>
#include <cstdlib>
#include <list>
#include <set>
#include <thread>

#include "cluster/base/errors.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"
#include "launcher/messages.h"

namespace headsweep {
namespace {

constexpr int kMessageTag = 1;
constexpr std::chrono::milliseconds kBusyPoll(1), kIdlePoll(5);
constexpr int kPollsUntilIdle = 1000;  // about a second without a message

void Check(int code, const char* operation) {
  if (code == MPI_SUCCESS) return;
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  throw CommError("MPI", operation, 0, std::string(text, static_cast<std::size_t>(length)));
}

// A number in the environment; fallback when it is not there.
int EnvironmentNumber(const char* name, int fallback) {
  const char* text = std::getenv(name);
  return text != nullptr && *text != '\0' ? std::atoi(text) : fallback;
}

}  // namespace

MpiEnvironment DetectMpi() {
  MpiEnvironment found;
  if (std::getenv("OMPI_COMM_WORLD_SIZE") !=
      nullptr) {  // mpirun of Open MPI; also srun --mpi=pmix in some versions
    found = {true, EnvironmentNumber("OMPI_COMM_WORLD_SIZE", 1),
             EnvironmentNumber("OMPI_COMM_WORLD_RANK", 0)};
    return found;
  }
  const int step_tasks =
      EnvironmentNumber("SLURM_STEP_NUM_TASKS", 1);  // set in srun's tasks, not in a batch script
  if (std::getenv("PMIX_RANK") != nullptr)
    return {true, step_tasks, EnvironmentNumber("PMIX_RANK", EnvironmentNumber("SLURM_PROCID", 0))};
  if (std::getenv("PMI_RANK") != nullptr)
    return {true, EnvironmentNumber("PMI_SIZE", step_tasks), EnvironmentNumber("PMI_RANK", 0)};
  if (step_tasks > 1)
    throw ConfigError(
        fmt::format("srun started {} processes without a way to find each other; each would run the whole "
                    "sweep. Use `srun --mpi=pmix headsweep …`, or one task a job step",
                    step_tasks));
  return found;
}

MpiWorld::MpiWorld(int expected_size) {
  int provided = 0;
  if (MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided) != MPI_SUCCESS)
    throw CommError("MPI", "MPI_Init", 0,
                    "it failed; is this program started by the mpirun of the same MPI?");
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  Check(MPI_Comm_rank(MPI_COMM_WORLD, &rank_), "MPI_Comm_rank");
  Check(MPI_Comm_size(MPI_COMM_WORLD, &size_), "MPI_Comm_size");
  if (size_ != expected_size) {
    Finish(true);
    throw ConfigError(fmt::format(
        "{} processes were started but MPI sees {}: the process launcher and the MPI library do not "
        "fit. Use the mpirun of the Open MPI that headsweep was built with, or `srun --mpi=pmix`",
        expected_size, size_));
  }
  MPI_Comm host = MPI_COMM_NULL;
  Check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank_, MPI_INFO_NULL, &host),
        "MPI_Comm_split_type");
  Check(MPI_Comm_rank(host, &rank_on_host_), "MPI_Comm_rank");
  Check(MPI_Comm_size(host, &ranks_on_host_), "MPI_Comm_size");
  Check(MPI_Comm_free(&host), "MPI_Comm_free");
}

MpiWorld::~MpiWorld() {
  if (!finished_) MPI_Abort(MPI_COMM_WORLD, kExitFailed);
}

void MpiWorld::Finish(bool clean) {
  finished_ = true;
  if (clean) MPI_Finalize();
}

struct MpiLink::Impl : std::enable_shared_from_this<MpiLink::Impl> {
  struct Sending {
    int to;
    std::string text;  // must not move until the request is complete
    MPI_Request request = MPI_REQUEST_NULL;
  };

  Impl(boost::asio::io_context& loop, const MpiWorld& world) : timer(loop) {
    if (world.rank() != 0) {
      peers.insert(0);
    } else {
      for (int rank = 1; rank < world.size(); ++rank) peers.insert(rank);
    }
  }

  void Schedule() {
    timer.expires_after(quiet_polls < kPollsUntilIdle ? kBusyPoll : kIdlePoll);
    timer.async_wait([self = shared_from_this()](const boost::system::error_code& error) {
      if (error || !self->receiver) return;
      self->Poll();
      self->Schedule();
    });
  }

  void Poll() {
    ++quiet_polls;
    ReapSends();
    int arrived = 0;
    MPI_Status status;
    while (receiver) {
      Check(MPI_Iprobe(MPI_ANY_SOURCE, kMessageTag, MPI_COMM_WORLD, &arrived, &status), "MPI_Iprobe");
      if (!arrived) return;
      quiet_polls = 0;
      ReceiveOne(status);
    }
  }

  // The message is there (probed), so this does not wait for the peer.
  void ReceiveOne(MPI_Status status) {
    int bytes = 0;
    Check(MPI_Get_count(&status, MPI_CHAR, &bytes), "MPI_Get_count");
    std::string text(static_cast<std::size_t>(bytes), '\0');
    Check(MPI_Recv(text.data(), bytes, MPI_CHAR, status.MPI_SOURCE, kMessageTag, MPI_COMM_WORLD,
                   MPI_STATUS_IGNORE),
          "MPI_Recv");
    if (!peers.contains(status.MPI_SOURCE)) return;
    const nlohmann::json message = ParseJson(text);
    if (!message.is_object()) {
      LogWarning("a message of rank {} is not a JSON object; ignored", status.MPI_SOURCE);
      return;
    }
    receiver(NodeId(status.MPI_SOURCE), message);
  }

  void ReapSends() {
    for (auto sending = sends.begin(); sending != sends.end();) {
      int done = 0;
      Check(MPI_Test(&sending->request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      sending = done ? sends.erase(sending) : std::next(sending);
    }
  }

  boost::asio::steady_timer timer;
  Link::Receiver receiver;
  std::set<int> peers;
  std::list<Sending> sends;
  std::list<Sending> abandoned;  // the buffers stay, MPI may still hold them
  int quiet_polls = 0;
};

MpiLink::MpiLink(boost::asio::io_context& loop, const MpiWorld& world)
    : impl_(std::make_shared<Impl>(loop, world)) {}

MpiLink::~MpiLink() {
  impl_->receiver = nullptr;
  impl_->timer.cancel();
}

std::vector<NodeId> MpiLink::peers() const {
  std::vector<NodeId> nodes;
  for (const int rank : impl_->peers) nodes.emplace_back(rank);
  return nodes;
}

void MpiLink::Start(Receiver receiver) {
  impl_->receiver = std::move(receiver);
  impl_->Schedule();
}

void MpiLink::Send(NodeId to, const nlohmann::json& message) {
  if (!impl_->peers.contains(to.value())) return;
  Impl::Sending& sending =
      impl_->sends.emplace_back(Impl::Sending{.to = to.value(), .text = DumpJson(message)});
  Check(MPI_Isend(sending.text.data(), static_cast<int>(sending.text.size()), MPI_CHAR, to.value(),
                  kMessageTag, MPI_COMM_WORLD, &sending.request),
        "MPI_Isend");
  impl_->quiet_polls = 0;
}

void MpiLink::Abandon(NodeId peer) {
  for (auto sending = impl_->sends.begin(); sending != impl_->sends.end();) {
    const auto next = std::next(sending);
    if (sending->to == peer.value()) impl_->abandoned.splice(impl_->abandoned.end(), impl_->sends, sending);
    sending = next;
  }
}

bool MpiLink::Flush(double timeout_seconds) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_seconds);
  while (true) {
    impl_->ReapSends();
    if (impl_->sends.empty()) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    std::this_thread::sleep_for(kBusyPoll);
  }
}

}  // namespace headsweep
