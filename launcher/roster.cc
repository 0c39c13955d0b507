#include "launcher/roster.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cluster/base/errors.h"
#include "cluster/base/hash.h"
#include "cluster/base/json.h"
#include "cluster/base/log.h"
#include "launcher/messages.h"

namespace headsweep {
namespace {

constexpr const char* kLeft = "left";

std::string CardFile(const std::string& directory) { return directory + "/launcher.json"; }
std::string BeatFile(const std::string& directory) { return directory + "/beat"; }

// "" when it is being written, or gone.
std::string ReadIfThere(const FileSystem& files, const std::string& path) {
  try {
    return files.ReadFile(path);
  } catch (const IoError& error) {
    if (error.error_number() == ENOENT || error.error_number() == ESTALE) return "";
    throw;
  }
}

std::optional<LauncherCard> ReadCard(const FileSystem& files, const std::string& directory) {
  const nlohmann::json json =
      ParseJson(ReadIfThere(files, CardFile(directory)));
  if (!json.is_object()) return std::nullopt;
  const std::optional<LockOwner> process = ParseLockOwner(message::Text(json, "process"));
  if (!process) return std::nullopt;
  return LauncherCard{"", directory, *process, message::Text(json, "launch"), message::Text(json, "toml_hash")};
}

// The modification time, by the clock of whoever keeps the file; opened, so that NFS asks the server.
std::optional<double> ModifiedAt(int fd) {
  struct stat info;
  if (fd < 0 || ::fstat(fd, &info) != 0) return std::nullopt;
  return static_cast<double>(info.st_mtim.tv_sec) + 1e-9 * static_cast<double>(info.st_mtim.tv_nsec);
}

}  // namespace

std::vector<LauncherCard> ReadRoster(const FileSystem& files, const Workspace& workspace, const std::string& sweep) {
  std::vector<LauncherCard> roster;
  const std::string directory = workspace.Launchers(sweep);
  if (!files.Exists(directory)) return roster;
  for (const std::string& name : files.List(directory)) {
    if (name.starts_with(".")) continue;  // joining now
    std::optional<LauncherCard> card = ReadCard(files, JoinPath(directory, name));
    if (!card) continue;
    card->key = card->directory.substr(workspace.root().size() + 1);
    roster.push_back(std::move(*card));
  }
  return roster;
}

Membership::Membership(FileSystem& files, const Workspace& workspace, const std::string& sweep,
                       const std::string& launch, const std::string& toml_hash)
    : files_(files) {
  card_.process = ThisProcess();
  const std::string mark = HashHex(FormatLockOwner(card_.process)).substr(0, 6);
  const std::string id = fmt::format("{}-{}-{}", card_.process.host, card_.process.pid, mark);
  card_.directory = JoinPath(workspace.Launchers(sweep), id);
  card_.key = card_.directory.substr(workspace.root().size() + 1);
  card_.launch = launch.empty() ? id : launch;
  card_.toml_hash = toml_hash;
  const std::string prepared = JoinPath(workspace.Launchers(sweep), "." + id);
  files.CreateDirectories(prepared);
  const nlohmann::json json = {
      {"process", FormatLockOwner(card_.process)}, {"launch", card_.launch}, {"toml_hash", card_.toml_hash}};
  files.WriteFile(CardFile(prepared), DumpJson(json) + "\n");
  files.WriteFile(BeatFile(prepared), "0\n");
  SealInPlace(files, prepared, card_.directory);
}

void Membership::Beat() { files_.WriteFile(BeatFile(card_.directory), fmt::format("{}\n", ++beats_)); }

Membership::~Membership() {
  try {
    files_.WriteFile(BeatFile(card_.directory), fmt::format("{}\n", kLeft));
  } catch (const std::exception& error) {
    LogWarning("the others will notice later that this launcher has left: {}", error.what());
  }
}

LauncherWatch::Observed& LauncherWatch::Observe(const std::string& key) {
  const auto [at, is_new] = observed_.try_emplace(key);
  if (is_new) {
    if (const auto card = ReadCard(files_, JoinPath(root_, key))) at->second.process = card->process;
    Read(key, at->second, 0);
  }
  return at->second;
}

void LauncherWatch::Read(const std::string& key, Observed& observed, double waited) const {
  std::string beat;
  try {
    beat = ReadIfThere(files_, BeatFile(JoinPath(root_, key)));
  } catch (const IoError& error) {
    LogWarning("{}", error.what());  // unknown is not dead
    return;
  }
  const bool is_first = observed.beat.empty(), same = beat == observed.beat;
  observed.silent_for = same ? observed.silent_for + waited : 0;
  observed.has_beaten |= !same && !is_first;
  observed.beat = beat;
  observed.left = beat.starts_with(kLeft);
}

void LauncherWatch::Look(double now, double longest_gap) {
  const double waited = last_look_ == 0 ? 0 : std::min(now - last_look_, longest_gap);
  last_look_ = now;
  for (auto& [key, observed] : observed_)
    if (!observed.left) Read(key, observed, waited);
}

bool LauncherWatch::IsGone(const std::string& key) {
  const Observed& observed = Observe(key);
  if (observed.left || observed.silent_for >= lease_seconds_) return true;
  return observed.process && ::headsweep::StateOf(*observed.process, here_) == OwnerState::kDead;
}

bool LauncherWatch::IsAlive(const std::string& key) {
  const Observed& observed = Observe(key);
  if (observed.left) return false;
  return observed.has_beaten || (observed.process && ::headsweep::StateOf(*observed.process, here_) == OwnerState::kAlive);
}

LauncherHealth HealthOf(const FileSystem& files, const LauncherCard& card) {
  LauncherHealth health;
  health.left = ReadIfThere(files, BeatFile(card.directory)).starts_with(kLeft);
  health.dead = StateOf(card.process, ThisProcess()) == OwnerState::kDead;
  if (health.left || health.dead) return health;
  // One clock: that of the file system, which stamps the beat and a file that is made now.
  std::string probe = ParentPath(card.directory) + "/.probe-XXXXXX";
  const int now = ::mkstemp(probe.data());
  const int beat = ::open(BeatFile(card.directory).c_str(), O_RDONLY | O_CLOEXEC);
  const std::optional<double> at = ModifiedAt(now), then = ModifiedAt(beat);
  if (at && then) health.silent_for = std::max(0.0, *at - *then);
  if (now >= 0) ::close(now), ::unlink(probe.c_str());
  if (beat >= 0) ::close(beat);
  return health;
}

}  // namespace headsweep
