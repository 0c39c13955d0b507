// The roster of a sweep that several launchers share: who works on it, and who is known to be gone (launcher/LEASES.md).
// Each has a directory <workspace>/sweeps/<name>/launchers/<id> of its own, in which nobody else writes (but requests):
//   launcher.json   who it is: one line of JSON, written before the directory gets its name
//   beat            a counter that rises for as long as it lives; "left" once it has left in order
//   journal.jsonl, live.json, requests/   as an exclusive launcher has them in the sweep's directory
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cluster/base/file_system.h"
#include "launcher/sweep_lock.h"
#include "launcher/workspace.h"

namespace headsweep {

struct LauncherCard {
  std::string key;        // its directory, from the workspace's root: "sweeps/s/launchers/node7-4711-3fa0b2"
  std::string directory;  // the same, absolute
  LockOwner process;
  std::string launch;     // launchers with the same text are one launch: failures of one count for all (core.h)
  std::string toml_hash;  // of the sweep file
};

inline std::string JournalOf(const std::string& launcher_directory) { return launcher_directory + "/journal.jsonl"; }

// Everybody who ever joined, whether alive or not; sorted by key.
std::vector<LauncherCard> ReadRoster(const FileSystem& files, const Workspace& workspace, const std::string& sweep);

// This process's place on the roster, for as long as the object lives.
class Membership {
 public:
  // Joins. Throws IoError.
  Membership(FileSystem& files, const Workspace& workspace, const std::string& sweep, const std::string& launch,
             const std::string& toml_hash);
  ~Membership();  // leaves; never throws
  Membership(const Membership&) = delete;
  Membership& operator=(const Membership&) = delete;

  const LauncherCard& card() const { return card_; }
  void Beat();  // throws IoError

 private:
  FileSystem& files_;
  LauncherCard card_;
  std::int64_t beats_ = 0;
};

// Tells who is gone, by positive evidence only: it has left; or its process is known to be dead (same host); or its beat has
// stood still for lease_seconds of this process's own clock, during all of which this process could read it. No clock of
// another host, and no time stamp of a file, is ever compared with another.
class LauncherWatch {
 public:
  LauncherWatch(const FileSystem& files, std::string workspace_root, double lease_seconds)
      : files_(files), root_(std::move(workspace_root)), lease_seconds_(lease_seconds), here_(ThisProcess()) {}

  // Looks at the beats of all who were ever asked about. now: monotonic seconds. Time between two looks counts for at most
  // longest_gap: if this process stood still, or the file server, that is not their silence.
  void Look(double now, double longest_gap);
  // key: LauncherCard::key. Asking for the first time begins the watch.
  bool IsGone(const std::string& key);
  // Whether it is known to live: its process is there (same host), or it has beaten since the watch began.
  bool IsAlive(const std::string& key);

 private:
  struct Observed {
    std::optional<LockOwner> process;
    std::string beat;
    double silent_for = 0;
    bool has_beaten = false;
    bool left = false;
  };
  Observed& Observe(const std::string& key);
  void Read(const std::string& key, Observed& observed, double waited) const;

  const FileSystem& files_;
  std::string root_;
  double lease_seconds_;
  LockOwner here_;
  double last_look_ = 0;
  std::map<std::string, Observed> observed_;
};

// For people who look once: what can be said about a launcher now.
struct LauncherHealth {
  bool left = false, dead = false;  // neither: it may live
  std::optional<double> silent_for;  // seconds since its last beat by the file system's own clock; nullopt: not known
};
LauncherHealth HealthOf(const FileSystem& files, const LauncherCard& card);

}  // namespace headsweep
