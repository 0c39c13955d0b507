// A library for LD_PRELOAD that makes the operating system fail on purpose, in the real programs. Environment:
//   HEADSWEEP_FAULT=<program>:<operation>:<errno>:<first>:<count>:<text>
//       in processes of that program (* for all), calls of the operation on paths that contain the text are counted, and
//       those from the first to the first + count - 1 fail with that errno (a number), without having done anything.
//       operation: fsync | flock | change (open for writing, mkdir, rename, unlink)
//   HEADSWEEP_FAULT_WHILE=FILE    only while FILE exists
//   HEADSWEEP_FAULT_CLOCK=FILE    CLOCK_REALTIME is off by so many seconds as FILE says; read at each call
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

namespace {

template <class Function>
Function Real(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

struct Rule {
  std::string operation, text;
  int error = 0;
  long first = 0, count = 0;
};

const Rule& TheRule() {
  static const Rule rule = [] {
    Rule parsed;
    const char* value = ::getenv("HEADSWEEP_FAULT");
    if (value == nullptr) return parsed;
    std::string part[6];
    int at = 0;
    for (const char* c = value; *c != '\0'; ++c) {
      if (*c == ':' && at < 5) {
        ++at;
      } else {
        part[at] += *c;
      }
    }
    if (part[0] != "*" && part[0] != ::program_invocation_short_name) return parsed;
    parsed = {part[1], part[5], ::atoi(part[2].c_str()), ::atol(part[3].c_str()), ::atol(part[4].c_str())};
    return parsed;
  }();
  return rule;
}

bool Exists(const char* path) { return ::syscall(SYS_access, path, F_OK) == 0; }

// Sets errno.
bool Fails(const char* operation, const char* path) {
  static std::atomic<long> calls{0};
  const Rule& rule = TheRule();
  if (rule.operation != operation || ::strstr(path, rule.text.c_str()) == nullptr) return false;
  const int saved = errno;
  const char* gate = ::getenv("HEADSWEEP_FAULT_WHILE");
  const bool open = gate == nullptr || Exists(gate);
  errno = saved;
  if (!open) return false;
  const long call = ++calls;
  if (call < rule.first || call >= rule.first + rule.count) return false;
  errno = rule.error;
  return true;
}

bool FailsAt(const char* operation, int fd) {
  char link[64], path[PATH_MAX];
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  const ssize_t n = ::readlink(link, path, sizeof path - 1);
  path[n < 0 ? 0 : n] = '\0';
  return Fails(operation, path);
}

bool Writes(int flags) { return (flags & O_ACCMODE) != O_RDONLY || (flags & O_CREAT) != 0; }

double ClockOffset() {
  static const char* file = ::getenv("HEADSWEEP_FAULT_CLOCK");
  if (file == nullptr) return 0;
  const int saved = errno;
  char text[64] = "0";
  const int fd = static_cast<int>(::syscall(SYS_openat, AT_FDCWD, file, O_RDONLY | O_CLOEXEC, 0));
  if (fd >= 0) {
    const ssize_t n = ::read(fd, text, sizeof text - 1);
    text[n < 0 ? 0 : n] = '\0';
    ::close(fd);
  }
  errno = saved;
  return ::atof(text);
}

}  // namespace

extern "C" {

int fsync(int fd) {
  if (FailsAt("fsync", fd)) return -1;
  return Real<int (*)(int)>("fsync")(fd);
}
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wshadow"  // struct flock
int flock(int fd, int operation) {
  if (FailsAt("flock", fd)) return -1;
  return Real<int (*)(int, int)>("flock")(fd, operation);
}
#pragma GCC diagnostic pop
int mkdir(const char* path, mode_t mode) {
  if (Fails("change", path)) return -1;
  return Real<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}
int rename(const char* from, const char* to) {
  if (Fails("change", to)) return -1;
  return Real<int (*)(const char*, const char*)>("rename")(from, to);
}
int unlink(const char* path) {
  if (Fails("change", path)) return -1;
  return Real<int (*)(const char*)>("unlink")(path);
}

#define HEADSWEEP_OPEN(name)                                                          \
  int name(const char* path, int flags, ...) {                                        \
    mode_t mode = 0;                                                                  \
    if ((flags & (O_CREAT | O_TMPFILE)) != 0) {                                       \
      va_list arguments;                                                              \
      va_start(arguments, flags);                                                     \
      mode = va_arg(arguments, mode_t);                                               \
      va_end(arguments);                                                              \
    }                                                                                 \
    if (Writes(flags) && Fails("change", path)) return -1;                            \
    return Real<int (*)(const char*, int, mode_t)>(#name)(path, flags, mode);         \
  }
HEADSWEEP_OPEN(open)
HEADSWEEP_OPEN(open64)

int clock_gettime(clockid_t clock, struct timespec* time) {
  static const auto real = Real<int (*)(clockid_t, struct timespec*)>("clock_gettime");
  const int result = real(clock, time);
  if (result == 0 && clock == CLOCK_REALTIME) time->tv_sec += static_cast<time_t>(ClockOffset());
  return result;
}

}  // extern "C"
