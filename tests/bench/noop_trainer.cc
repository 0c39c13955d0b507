// A trainer that does nothing, for measuring what is around it: says that it took its one step, leaves an empty result and goes.
// The same program is run by `headsweep run` (HEADSWEEP_TRAINER) and, without a control channel, by GNU parallel.
//   noop-trainer <trial>/config.toml [--control-fd N] …
//   NOOP_TIMES=FILE   appends one line "<start> <end>": seconds of the monotonic clock, at main and just before the exit
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

namespace {

double Now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

void Say(int control, const char* line) {
  const std::size_t size = std::strlen(line);
  if (control >= 0 && ::send(control, line, size, MSG_NOSIGNAL) != static_cast<ssize_t>(size)) std::_Exit(1);
}

bool Append(const char* path, int flags, const char* text) {
  const int file = ::open(path, O_WRONLY | O_CREAT | flags, 0666);
  const std::size_t size = std::strlen(text);
  const bool written = file >= 0 && ::write(file, text, size) == static_cast<ssize_t>(size);
  return written && ::close(file) == 0;
}

}  // namespace

int main(int argc, char** argv) {
  const double start = Now();
  if (argc < 2) return 2;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  int control = -1;
  for (int i = 2; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], "--control-fd") == 0) control = std::atoi(argv[i + 1]);
  }
  Say(control, "{\"type\":\"hello\",\"step\":0,\"steps\":1}\n");
  Say(control, "{\"type\":\"progress\",\"phase\":\"train\",\"step\":1,\"steps\":1,\"loss\":1.0,\"tokens_per_second\":1.0}\n");

  char path[4096];
  const char* slash = std::strrchr(argv[1], '/');
  const int folder = slash == nullptr ? 0 : static_cast<int>(slash - argv[1]) + 1;
  std::snprintf(path, sizeof path, "%.*sresult.h5", folder, argv[1]);
  if (!Append(path, O_TRUNC, "nothing\n")) return 1;
  Say(control, "{\"type\":\"done\",\"outcome\":\"finished\",\"summary\":{}}\n");

  const char* times = std::getenv("NOOP_TIMES");
  if (times == nullptr) return 0;
  char line[64];
  std::snprintf(line, sizeof line, "%.9f %.9f\n", start, Now());
  return Append(times, O_APPEND, line) ? 0 : 1;
}
