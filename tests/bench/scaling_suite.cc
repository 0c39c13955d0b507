// Suite "scaling": the step of 1, 2 and 4 processes, the same effective batch, beside what cluster/scaling.h (`headsweep plan`)
// makes of the step of one. What the plan is told is measured here too: the step of one process, its part that does not
// shrink, and the link, from sums of a few bytes and of all gradients between two processes. All processes are there from
// the beginning; those whose turn it is not wait for a word and cost nothing.
#include <fmt/format.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "cluster/scaling.h"
#include "kernels/backend.h"
#include "tests/bench/step_model.h"
#include "tests/bench/suites.h"
#include "tests/support/temp_dir.h"
#include "trainer/gradient_exchange.h"
#include "trainer/optimizer.h"
#include "trainer/rendezvous.h"

namespace headsweep::bench {
namespace {

constexpr int kSizes[] = {1, 2, 4};
constexpr std::int64_t kBucketBytes = 4 << 20;
constexpr int kLeastRounds = 10, kMostRounds = 200;

enum class Task : char { kStep, kUpdate, kFewBytes, kAllBytes, kLeave };

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// One process of a group of `size`: does what it is told, and answers with the seconds that it took.
class Process {
 public:
  Process(int rank, int size, const std::string& folder, const StepShape& whole)
      : rendezvous_(MakeFileRendezvous(FileSystem::Real(), folder)),
        collective_(size == 1 ? MakeSingleProcessCollective()
                              : MakeGlooCollective({.rank = rank, .world_size = size}, *rendezvous_)),
        shape_(ShareOf(whole, size)),
        size_(size),
        backend_(MakeBackend({"cpu", 1})),
        model_(*backend_, ModelShapeOf(shape_), shape_.B, Model::Purpose::kTrain),
        optimizer_(model_, TrainConfig{}),
        exchange_(*collective_, model_, kBucketBytes),
        batch_(RandomBatch(shape_)) {
    model_.Initialize(1);
  }

  double Do(Task task) {
    collective_->Barrier();
    const SystemClock clock;
    const double started = clock.Monotonic();
    if (task == Task::kStep) {
      Work();
      Update();
    } else if (task == Task::kUpdate) {
      Update();
    } else {
      collective_->AllReduceSum(model_.gradients(), task == Task::kFewBytes ? 4 : model_.layout().size());
      collective_->Wait();
    }
    return clock.Monotonic() - started;
  }

 private:
  static StepShape ShareOf(StepShape shape, int size) {
    shape.B /= size;
    return shape;
  }
  void Work() {
    ForwardBackwardOptions options;
    options.gradient_scale = 1.0f / static_cast<float>(size_ * batch_.target_count);
    options.step = ++step_;
    if (size_ > 1) options.on_layer_done = [&](int layer) { exchange_.LayerDone(layer); };
    model_.ForwardBackward(batch_, options);
    if (size_ > 1) exchange_.Finish();
  }
  void Update() {
    optimizer_.GradientNorm();
    optimizer_.Update(1e-4, std::max<std::int64_t>(step_, 1));
    model_.ZeroGradients();
  }

  std::unique_ptr<Rendezvous> rendezvous_;
  std::unique_ptr<Collective> collective_;
  const StepShape shape_;
  const int size_;
  std::unique_ptr<Backend> backend_;
  Model model_;
  Optimizer optimizer_;
  GradientExchange exchange_;
  Batch batch_;
  std::int64_t step_ = 0;
};

void Exchange(int socket, void* bytes, std::size_t count, bool send) {
  const ssize_t n = send ? ::send(socket, bytes, count, MSG_NOSIGNAL) : ::recv(socket, bytes, count, MSG_WAITALL);
  if (n != static_cast<ssize_t>(count)) throw CommError("a process of the suite", send ? "word to it" : "word of it", 0, "it has died");
}

// A process and this one's end of the line to it.
struct Child {
  pid_t pid = -1;
  int socket = -1;
};

Child StartProcess(int rank, int size, const std::string& folder, const StepShape& shape) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) throw IoError("socketpair", "scaling", errno);
  const pid_t pid = ::fork();  // this process has no threads, and none of a model's memory
  if (pid < 0) throw IoError("fork", "headsweep-bench", errno);
  if (pid > 0) {
    ::close(ends[1]);
    return {pid, ends[0]};
  }
  ::close(ends[0]);
  try {
    Process process(rank, size, folder, shape);
    for (Task task;;) {
      Exchange(ends[1], &task, sizeof task, false);
      if (task == Task::kLeave) ::_exit(kExitDone);
      double seconds = process.Do(task);
      Exchange(ends[1], &seconds, sizeof seconds, true);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "headsweep-bench: {}\n", error.what());
    ::_exit(kExitFailed);
  }
}

// Processes that make one step together.
class Group {
 public:
  Group(int size, const std::string& folder, const StepShape& shape) : size_(size) {
    FileSystem::Real().CreateDirectories(folder);
    for (int rank = 0; rank < size; ++rank) children_.push_back(StartProcess(rank, size, folder, shape));
  }
  ~Group() {
    Task leave = Task::kLeave;
    for (const Child& child : children_) {
      ::send(child.socket, &leave, sizeof leave, MSG_NOSIGNAL);
      ::close(child.socket);
      ::waitpid(child.pid, nullptr, 0);
    }
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int size() const { return size_; }
  double Do(Task task) const {  // seconds of the slowest
    for (const Child& child : children_) Exchange(child.socket, &task, sizeof task, true);
    double longest = 0;
    for (const Child& child : children_) {
      double seconds = 0;
      Exchange(child.socket, &seconds, sizeof seconds, false);
      longest = std::max(longest, seconds);
    }
    return longest;
  }

 private:
  const int size_;
  std::vector<Child> children_;
};

int UsableCores() {
  cpu_set_t set;
  return ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Report RunScaling(const Options& options) {
  const StepShape shape;
  const testing::TempDir folder;
  std::vector<std::unique_ptr<Group>> groups;
  for (const int size : kSizes)
    groups.push_back(std::make_unique<Group>(size, folder / std::to_string(size), shape));

  double longest = 0;  // also warms up
  for (int i = 0; i < 2; ++i) {
    longest = 0;
    for (const auto& group : groups) longest += group->Do(Task::kStep) + group->Do(Task::kAllBytes);
  }
  const int rounds = std::clamp(static_cast<int>(options.seconds / longest), kLeastRounds, kMostRounds);
  std::vector<std::vector<double>> steps(groups.size());
  std::vector<double> update, few, all;
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t i = 0; i < groups.size(); ++i) {
      const std::size_t turn = (i + static_cast<std::size_t>(round)) % groups.size();
      steps[turn].push_back(groups[turn]->Do(Task::kStep));
    }
    update.push_back(groups[0]->Do(Task::kUpdate));
    few.push_back(groups[1]->Do(Task::kFewBytes));
    all.push_back(groups[1]->Do(Task::kAllBytes));
  }

  ScalingModel model;
  model.step_seconds = Median(steps[0]);
  model.fixed_seconds = Median(update);
  model.batch = shape.B;
  model.gradient_bytes = 4.0 * static_cast<double>(ParameterLayout(ModelShapeOf(shape)).size());
  model.bucket_bytes = kBucketBytes;
  model.devices_per_node = kSizes[std::size(kSizes) - 1];
  model.overlap = 0;
  // Of two: one sum is 2 messages and carries all bytes once.
  model.inner.latency = Median(few) / 2;
  model.inner.bandwidth = model.gradient_bytes / std::max(1e-9, Median(all) - Median(few));
  model.outer = model.inner;

  Report report;
  report.suite = "scaling";
  report.machine = MakeBackend({"cpu", 1})->description();
  const int cores = UsableCores();
  Table table{fmt::format("B {} in all, T {}, layers {}, embed {}, one thread a process, {} cores; link {:.2f} GB/s, {:.0f} us a message",
                          shape.B, shape.T, shape.L, shape.C, cores, model.inner.bandwidth / 1e9, model.inner.latency * 1e6),
              {"processes", "step ms", "step min", "plan ms", "of it exposed", "measured / plan"},
              {}};
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const int size = groups[i]->size();
    ScalingModel shared = model;
    const double slower = std::max(1.0, static_cast<double>(size) / cores);
    shared.step_seconds *= slower;
    shared.fixed_seconds *= slower;
    const ScalingPoint plan = Scale(shared, size);
    const double measured = Median(steps[i]);
    table.rows.push_back({std::to_string(size), measured * 1e3,
                          *std::min_element(steps[i].begin(), steps[i].end()) * 1e3, plan.step * 1e3, plan.exposed * 1e3,
                          measured / plan.step});
  }
  report.tables.push_back(table);
  report.notes = {
      fmt::format("{} rounds, every size in turn; the plan is told the step of one process ({:.1f} ms, of it {:.1f} ms update), "
                  "overlap 0, and that processes beyond the cores share them.",
                  rounds, model.step_seconds * 1e3, model.fixed_seconds * 1e3)};
  return report;
}

}  // namespace headsweep::bench
