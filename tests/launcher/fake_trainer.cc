// A trainer that trains nothing but speaks the control protocol and can go wrong in every way we know. Same
// command line as headsweep-trainer. Behaviour comes from the environment:
//   FAKE_STEPS=5            steps of a stage; after each a progress message, a checkpoint and a line in
//   FAKE_EVENTS FAKE_EVENTS=FILE        one line an event: "<stage> <attempt> start|step-<k>|finish"
//   FAKE_PACE=ms            each step takes a random time of up to so many milliseconds
//   FAKE_GATE=FILE          waits after FAKE_GATE_AT (default 1) steps until FILE exists; still obeys stop
//   and SIGTERM
//   FAKE_EVALUATE=1         after each step an evaluation whose perplexity is the trial's seed
//   RANK, WORLD_SIZE        of several: all meet over the control channel before the first step; only rank 0
//   writes,
//                           the others leave when the result is there
// and faults, in processes that FAKE_ATTEMPT (default: all), FAKE_RANK (default: all) and FAKE_ONCE=FILE
// (whoever creates FILE first) pick:
//   FAKE_DIE_AT=k           SIGKILLs itself after k steps
//   FAKE_EXIT_AT=k:code     exits without "done"
//   FAKE_FAIL_AT=k:cause    says done{failed, cause}
//   FAKE_HANG_AT=k          neither progress nor obedience from step k on (SIGTERM still works)
//   FAKE_IGNORE_TERM=1      SIGTERM and "stop" do nothing
//   FAKE_SPAWN=1            leaves a grandchild in a session of its own
//   FAKE_GARBAGE=1          bad JSON, numbers as text, a line of 3 MB, NUL bytes, an unfinished line
//   FAKE_CLAIM=1            says done{finished} without a result
// and for --probe:
//   FAKE_GPUS=n             so many GPUs; CUDA_VISIBLE_DEVICES hides the last ones if it names fewer
//   FAKE_PROBE=hang|crash   does not answer
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <set>
#include <string>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"
#include "cluster/base/gpu_report.h"
#include "results/stage_file.h"
#include "trainer/control_protocol.h"

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

volatile std::sig_atomic_t terminated = 0;

std::string Env(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int Number(const char* name, int fallback) {
  const std::string value = Env(name);
  return value.empty() ? fallback : std::atoi(value.c_str());
}

std::string AfterColon(const char* name) {
  const std::string value = Env(name);
  const auto colon = value.find(':');
  return colon == std::string::npos ? "" : value.substr(colon + 1);
}

class FakeTrainer {
 public:
  FakeTrainer(int argc, char** argv) {
    const fs::path config = argv[1];
    trial_ = config.parent_path();
    stage_ = trial_.filename().string();
    for (int i = 2; i + 1 < argc; i += 2) {
      if (argv[i] == std::string("--attempt")) attempt_ = std::atoi(argv[i + 1]);
      if (argv[i] == std::string("--control-fd")) control_ = std::atoi(argv[i + 1]);
      if (argv[i] == std::string("--fence")) fence_ = argv[i + 1];
    }
    faulty_ = (Env("FAKE_ATTEMPT").empty() || Number("FAKE_ATTEMPT", 0) == attempt_) &&
              (Env("FAKE_RANK").empty() || Number("FAKE_RANK", 0) == rank_) && ClaimOnce();
  }

  int Run() {
    const int steps = Number("FAKE_STEPS", 5);
    int step = 0;
    std::ifstream(trial_ / "checkpoint") >> step;
    Event("start");
    if (const char* gpus = std::getenv("CUDA_VISIBLE_DEVICES")) Event(std::string("gpus-") + gpus);
    if (world_ > 1) Meet();
    if (faulty_ && !Env("FAKE_SPAWN").empty()) SpawnGrandchild();
    Say({{"type", "hello"},
         {"pid", ::getpid()},
         {"stage", stage_},
         {"attempt", attempt_},
         {"step", step},
         {"steps", steps}});
    if (faulty_ && !Env("FAKE_GARBAGE").empty()) SayGarbage();
    while (step < steps) {
      if (Fault("FAKE_HANG_AT", step)) Hang();
      if (Fault("FAKE_DIE_AT", step)) ::kill(::getpid(), SIGKILL);
      if (Fault("FAKE_EXIT_AT", step)) return std::atoi(AfterColon("FAKE_EXIT_AT").c_str());
      if (Fault("FAKE_FAIL_AT", step)) return Fail(AfterColon("FAKE_FAIL_AT"));
      if (step == Number("FAKE_GATE_AT", 1)) WaitForGate();
      if (StopAsked(Pace())) return Stop();
      ++step;
      if (rank_ == 0 && !Save(step)) return Fenced();
      Say({{"type", "checkpoint"}, {"step", step}, {"path", (trial_ / "checkpoint").string()}});
      Say({{"type", "progress"},
           {"phase", "train"},
           {"step", step},
           {"steps", steps},
           {"loss", 1.0 / step},
           {"tokens_per_second", 1000}});
      if (!Env("FAKE_EVALUATE").empty()) Say(Evaluation(step));
      Event("step-" + std::to_string(step));
    }
    if (faulty_ && !Env("FAKE_CLAIM").empty()) return Done("finished", "", ""), 0;
    if (rank_ != 0) return WaitForResult();
    headsweep::Provenance provenance;
    provenance.stage_id = stage_;
    provenance.kind = "train";
    headsweep::StageSummary summary;
    summary.digest = "digest-of-" + stage_;
    const std::string temporary = trial_ / ("result.tmp-" + std::to_string(attempt_));
    fs::remove(temporary);
    headsweep::WriteStageFile(temporary, provenance, {}, summary);
    if (!Seal(temporary, trial_ / "result.h5")) return Fenced();
    Event("finish");
    Done("finished", "", "");
    return 0;
  }

 private:
  json Evaluation(int step) const {
    std::ifstream config(trial_ / "config.toml");
    double seed = 0;
    for (std::string line; std::getline(config, line);)
      if (line.starts_with("seed = ")) seed = std::atof(line.c_str() + 7);
    return {{"type", "evaluation"}, {"step", step}, {"split", "valid"}, {"nll", seed}, {"perplexity_per_word", seed}};
  }

  // Says where it is, and hears where the others are.
  void Meet() const {
    Say({{"type", "rendezvous"},
         {"key", "place." + std::to_string(rank_)},
         {"value", std::string(100000, 'x')}});
    std::string received;
    std::set<std::string> met;
    while (static_cast<int>(met.size()) < world_ - 1) {
      char bytes[4096];
      const ssize_t n = ::recv(control_, bytes, sizeof bytes, 0);
      if (n <= 0) std::_Exit(69);
      received.append(bytes, static_cast<std::size_t>(n));
      for (auto end = received.find('\n'); end != std::string::npos; end = received.find('\n')) {
        const json message = json::parse(received.substr(0, end));
        received.erase(0, end + 1);
        if (message.at("type") == "stop") std::_Exit(75);
        if (message.at("value").get<std::string>().size() == 100000) met.insert(message.at("key"));
      }
    }
    Event("met");
  }
  int WaitForResult() const {
    while (!fs::exists(trial_ / "result.h5")) {
      if (StopAsked(2)) return Stop();
    }
    Done("finished", "", "");
    return 0;
  }
  bool ClaimOnce() const {
    const std::string marker = Env("FAKE_ONCE");
    if (marker.empty()) return true;
    const int fd = ::open(marker.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0666);
    if (fd >= 0) ::close(fd);
    return fd >= 0;
  }
  bool Fault(const char* name, int step) const {
    return faulty_ && !Env(name).empty() && std::atoi(Env(name).c_str()) == step;
  }

  void Event(const std::string& what) const {
    const std::string file = Env("FAKE_EVENTS");
    if (file.empty()) return;
    const std::string of_rank = rank_ == 0 ? "" : "-rank-" + std::to_string(rank_);
    const std::string line = stage_ + " " + std::to_string(attempt_) + " " + what + of_rank + "\n";
    const int fd = ::open(file.c_str(), O_CREAT | O_APPEND | O_WRONLY, 0666);
    if (::write(fd, line.data(), line.size()) < 0) std::abort();
    ::close(fd);
  }

  bool Save(int step) const {
    const std::string temporary = trial_ / ("checkpoint.tmp-" + std::to_string(attempt_));
    std::ofstream(temporary) << step;
    return Seal(temporary, trial_ / "checkpoint");
  }
  // False: the fence is gone, and nothing was sealed.
  bool Seal(const std::string& temporary, const fs::path& path) const {
    if (fence_.empty()) {
      fs::rename(temporary, path);
      return true;
    }
    try {
      headsweep::SealInPlace(headsweep::FileSystem::Real(), temporary, path, fence_);
      return true;
    } catch (const headsweep::IoError&) {
      return false;
    }
  }
  int Fenced() const {
    Event("fenced");
    Done("failed", headsweep::control::kCauseInputOutput, "another launcher has taken this trial over");
    return 74;
  }

  void SayRaw(const std::string& bytes) const {
    for (std::size_t sent = 0; control_ >= 0 && sent < bytes.size();) {
      const ssize_t n = ::send(control_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n < 0) return;
      sent += static_cast<std::size_t>(n);
    }
  }
  void Say(const json& message) const { SayRaw(message.dump() + "\n"); }
  void Done(const std::string& outcome, const std::string& cause, const std::string& text) const {
    Say({{"type", "done"},
         {"outcome", outcome},
         {"cause", cause},
         {"message", text},
         {"summary", {{"digest", "digest-of-" + stage_}, {"summary_line", "fake " + stage_}}}});
  }
  int Fail(const std::string& cause) const {
    Done("failed", cause, "this fake was told to fail");
    return cause == headsweep::control::kCauseConfiguration ? 2 : 1;
  }
  int Stop() const {
    Done("stopped", "", "checkpointed");
    return 75;
  }
  void SayGarbage() const {
    SayRaw("this is no JSON\n\n[1,2]\n{\"type\":\"progress\",\"step\":\"many\"}\n{\"type\":7}\n");
    SayRaw("{\"type\":\"progress\",\"text\":\"\xff\xfe\"}\n");
    SayRaw(std::string(3 << 20, 'x') + "\n" + std::string(3, '\0') + "\n{\"type\":\"unheard-of\"}\n");
  }
  void SpawnGrandchild() const {
    if (::fork() != 0) return;
    ::setsid();
    while (true) ::pause();
  }

  static int Pace() {
    const int longest = Number("FAKE_PACE", 0);
    return longest > 0 ? static_cast<int>(std::random_device{}() % static_cast<unsigned>(longest)) : 0;
  }
  bool IgnoresTerm() const { return faulty_ && !Env("FAKE_IGNORE_TERM").empty(); }
  // A stop message, the end of the channel, or SIGTERM; waits at most milliseconds for it.
  bool StopAsked(int milliseconds) const {
    pollfd wait = {control_, POLLIN, 0};
    const bool spoken = control_ >= 0 && ::poll(&wait, 1, milliseconds) > 0;
    return (spoken || terminated) && !IgnoresTerm();
  }
  void WaitForGate() const {
    const std::string gate = Env("FAKE_GATE");
    while (!gate.empty() && !fs::exists(gate) && (!terminated || IgnoresTerm())) {
      pollfd wait = {IgnoresTerm() ? -1 : control_, POLLIN, 0};
      if (::poll(&wait, 1, 5) > 0) return;
    }
  }
  void Hang() const {
    while (!terminated || IgnoresTerm()) ::pause();
    std::_Exit(1);
  }

  fs::path trial_;
  std::string stage_, fence_;
  int attempt_ = 0, control_ = -1;
  int rank_ = Number("RANK", 0), world_ = Number("WORLD_SIZE", 1);
  bool faulty_ = false;
};

// What the real trainer says; see cluster/base/gpu_report.h.
int Probe() {
  if (Env("FAKE_PROBE") == "hang") ::pause();
  if (Env("FAKE_PROBE") == "crash") std::abort();
  headsweep::GpuReport report;
  report.cuda_build = true;
  int count = Number("FAKE_GPUS", 0);
  if (const char* list = std::getenv("CUDA_VISIBLE_DEVICES"))
    count = std::min<int>(count, *list == '\0' ? 0 : 1 + std::count(list, list + std::strlen(list), ','));
  for (int i = 0; i < count; ++i) {
    headsweep::GpuDevice device;
    device.index = i;
    device.name = "Fake GPU";
    report.devices.push_back(device);
  }
  if (count == 0)
    report.problem = headsweep::GpuProblem{"no-device", "the fake driver sees no GPU", "fake more of them"};
  std::cout << "a line of some library\n" << ToJson(report) << std::endl;
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  if (argv[1] == std::string("--probe")) return Probe();
  const pid_t parent = ::getppid();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return 1;
  struct sigaction action = {};
  action.sa_handler = [](int) { terminated = 1; };
  ::sigaction(SIGTERM, &action, nullptr);
  return FakeTrainer(argc, argv).Run();
}
