#include "trainer/rendezvous.h"

#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "cluster/base/clock.h"
#include "cluster/base/errors.h"

namespace headsweep {
namespace {

constexpr double kDefaultTimeout = 60;
constexpr std::chrono::milliseconds kFilePause(5);

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

int NumberFromEnvironment(const char* name, int fallback) {
  const std::string text = Environment(name);
  if (text.empty()) return fallback;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0)
    throw ConfigError(fmt::format("{}={}: expected a number", name, text));
  return value;
}

class FileRendezvous final : public Rendezvous {
 public:
  FileRendezvous(FileSystem& files, std::string directory) : files_(files), directory_(std::move(directory)) {
    files_.CreateDirectories(directory_);
  }
  void Set(const std::string& key, const std::string& value) override {
    const std::string path = JoinPath(directory_, key), temporary = path + ".tmp";
    if (files_.Exists(path))
      throw ConfigError(fmt::format(
          "{} is there already: each run needs a rendezvous folder of its own, give a new one", path));
    files_.WriteFile(temporary, value);
    files_.Rename(temporary, path);
  }
  std::string Get(const std::string& key, double timeout_seconds) override {
    const std::string path = JoinPath(directory_, key);
    const SystemClock clock;
    const double started = clock.Monotonic();
    while (!files_.Exists(path)) {
      if (clock.Monotonic() - started > timeout_seconds)
        throw CommError("its peers", "wait for " + path, clock.Monotonic() - started,
                        "nobody wrote it; were all processes of the trial started, with the same folder?");
      std::this_thread::sleep_for(kFilePause);
    }
    return files_.ReadFile(path);
  }

 private:
  FileSystem& files_;
  const std::string directory_;
};

}  // namespace

World WorldFromEnvironment() {
  World world;
  world.world_size = NumberFromEnvironment("WORLD_SIZE", 1);
  world.rank = NumberFromEnvironment("RANK", 0);
  world.local_rank = NumberFromEnvironment("LOCAL_RANK", 0);
  if (world.world_size < 1 || world.rank >= world.world_size)
    throw ConfigError(
        fmt::format("RANK={} of WORLD_SIZE={}: ranks count from 0", world.rank, world.world_size));
  return world;
}

double CollectiveTimeoutFromEnvironment() {
  const std::string text = Environment("HEADSWEEP_COLLECTIVE_TIMEOUT");
  if (text.empty()) return kDefaultTimeout;
  char* end = nullptr;
  const double seconds = std::strtod(text.c_str(), &end);
  if (*end != '\0' || !std::isfinite(seconds) || !(seconds > 0))
    throw ConfigError(
        fmt::format("HEADSWEEP_COLLECTIVE_TIMEOUT={}: give a positive number of seconds", text));
  return seconds;
}

std::unique_ptr<Rendezvous> MakeFileRendezvous(FileSystem& files, const std::string& directory) {
  return std::make_unique<FileRendezvous>(files, directory);
}

std::unique_ptr<Rendezvous> RendezvousFromEnvironment(const World& world, double timeout_seconds) {
  if (const std::string directory = Environment("HEADSWEEP_RENDEZVOUS_DIR"); !directory.empty())
    return MakeFileRendezvous(FileSystem::Real(), directory);
  const std::string host = Environment("MASTER_ADDR");
  const int port = NumberFromEnvironment("MASTER_PORT", 0);
  if (host.empty() || port == 0 || port > 65535)
    throw ConfigError(fmt::format(
        "WORLD_SIZE={} processes need a place to meet: set MASTER_ADDR and MASTER_PORT (where rank 0 "
        "listens), or HEADSWEEP_RENDEZVOUS_DIR",
        world.world_size));
  return MakeTcpRendezvous(world.rank, host, port, timeout_seconds);
}

}  // namespace headsweep
