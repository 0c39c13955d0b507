// MPI, as far as headsweep uses it: a carrier of small messages between rank 0 (the coordinator) and the
// agents. Nothing blocks: receives are MPI_Iprobe on a timer (about 1 ms while there is traffic, 5 ms when
// idle: 1 to 2 % of a core, where a blocked MPI_Recv burns all of it), sends are MPI_Isend and are never
// waited for. <mpi.h> stays in mpi_link.cc (and mpi_check.cc).
#pragma once

#include <boost/asio/io_context.hpp>

#include <memory>
#include <optional>
#include <string>

#include "launcher/link.h"

namespace headsweep {

// Where this process stands among those that mpirun or srun started; found without touching MPI.
struct MpiEnvironment {
  bool launched = false;  // by mpirun, or srun with PMI: MPI_Init will find its peers
  int expected_size = 1;  // processes that the launcher of processes says there are
  int rank = 0;
};
// Throws ConfigError when several processes were started that cannot find each other (srun without
// --mpi=pmix): each would take itself for the only one and run the whole sweep.
MpiEnvironment DetectMpi();

// MPI from its start to its end. Constructed at most once in a process.
class MpiWorld {
 public:
  // MPI_Init; then checks that there are expected_size ranks. Throws ConfigError when not.
  explicit MpiWorld(int expected_size);
  // When Finish was not called (an exception), the other ranks are ended too: MPI_Abort.
  ~MpiWorld();
  MpiWorld(const MpiWorld&) = delete;
  MpiWorld& operator=(const MpiWorld&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  int rank_on_host() const { return rank_on_host_; }
  int ranks_on_host() const { return ranks_on_host_; }

  // clean: MPI_Finalize (all ranks must call it). Otherwise nothing: Finalize would wait for the dead, so the
  // process must end by _exit.
  void Finish(bool clean);
  bool finished() const { return finished_; }

 private:
  int rank_ = 0, size_ = 1, rank_on_host_ = 0, ranks_on_host_ = 1;
  bool finished_ = false;
};

class MpiLink final : public Link {
 public:
  // On rank 0 the peers are all other ranks, elsewhere rank 0.
  MpiLink(boost::asio::io_context& loop, const MpiWorld& world);
  ~MpiLink() override;
  std::vector<NodeId> peers() const override;
  void Start(Receiver receiver) override;
  void Send(NodeId to, const nlohmann::json& message) override;
  void Abandon(NodeId peer) override;
  // Progresses MPI until everything sent to living peers has left, at most timeout_seconds. Called outside
  // the loop, before MpiWorld::Finish. Returns whether all has left.
  bool Flush(double timeout_seconds);

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the timer's handler
};

}  // namespace headsweep
