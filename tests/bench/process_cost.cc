#include "tests/bench/process_cost.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"
#include "launcher/process.h"

namespace headsweep::bench {
namespace {

std::string ReadProc(pid_t pid, const char* name) {
  std::ostringstream text;
  text << std::ifstream(fmt::format("/proc/{}/{}", pid, name)).rdbuf();
  return text.str();
}

double PeakMegabytes(pid_t pid) {  // 0: not known any more (a process that has ended has no memory)
  const std::string status = ReadProc(pid, "status");
  const auto at = status.find("VmHWM:");
  return at == std::string::npos ? 0 : std::strtod(status.c_str() + at + 6, nullptr) / 1024;
}

// proc(5): fields 14 to 17 of stat are utime, stime, cutime and cstime, in clock ticks. Readable until it is reaped.
void ReadCpu(pid_t pid, ProcessCost& cost) {
  const std::string stat = ReadProc(pid, "stat");
  std::istringstream fields(stat.substr(stat.rfind(')') + 2));
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0, children_user = 0, children_system = 0;
  fields >> user >> system >> children_user >> children_system;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  cost.cpu = (user + system) / ticks;
  cost.children_cpu = (children_user + children_system) / ticks;
}

double Seconds(const timeval& time) { return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec); }

}  // namespace

ProcessCost MeasureProgram(const std::vector<std::string>& command,
                           const std::vector<std::pair<std::string, std::string>>& environment, const std::string& log,
                           const std::vector<int>& accepted) {
  ProcessSpec spec;
  spec.command = command;
  spec.environment = environment;
  spec.log_path = log;
  const SystemClock clock;
  const double start = clock.Monotonic();
  const pid_t pid = Spawn(spec).pid;
  ProcessCost cost;
  siginfo_t info = {};
  while (true) {
    if (::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0)
      throw IoError("wait for process", command.front(), errno);
    if (info.si_pid != 0) break;
    cost.peak_megabytes = std::max(cost.peak_megabytes, PeakMegabytes(pid));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  cost.wall = clock.Monotonic() - start;
  ReadCpu(pid, cost);
  const auto status = WaitFor(pid, 10);
  if (!status || status->signal != 0 || std::find(accepted.begin(), accepted.end(), status->code) == accepted.end())
    throw ConfigError(fmt::format("{} ended with {}; its output is the end of {}", fmt::join(command, " "),
                                  status ? ToString(*status) : "nothing", log));
  return cost;
}

ForkedCost MeasureForked(const std::function<std::vector<double>()>& work) {
  int ends[2];
  if (::pipe(ends) != 0) throw IoError("pipe", "headsweep-bench", errno);
  const SystemClock clock;
  const double start = clock.Monotonic();
  const pid_t pid = ::fork();
  if (pid < 0) throw IoError("fork", "headsweep-bench", errno);
  if (pid == 0) {
    try {
      std::vector<double> numbers = work();
      rusage usage = {};
      ::getrusage(RUSAGE_SELF, &usage);
      numbers.insert(numbers.begin(), {Seconds(usage.ru_utime) + Seconds(usage.ru_stime), PeakMegabytes(::getpid())});
      const std::size_t bytes = numbers.size() * sizeof(double);
      ::_exit(::write(ends[1], numbers.data(), bytes) == static_cast<ssize_t>(bytes) ? 0 : 1);
    } catch (const std::exception& error) {
      fmt::print(stderr, "headsweep-bench: {}\n", error.what());
      ::_exit(1);
    }
  }
  ::close(ends[1]);
  std::vector<double> numbers;
  for (double number = 0; ::read(ends[0], &number, sizeof number) == sizeof number;) numbers.push_back(number);
  ::close(ends[0]);
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0 || numbers.size() < 2) throw ConfigError("a part of the measurement failed; see above");
  ForkedCost result;
  result.cost = {.wall = clock.Monotonic() - start, .cpu = numbers[0], .children_cpu = 0, .peak_megabytes = numbers[1]};
  result.answers.assign(numbers.begin() + 2, numbers.end());
  return result;
}

}  // namespace headsweep::bench
