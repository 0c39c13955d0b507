#include "launcher/lease.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <vector>

#include "cluster/base/errors.h"
#include "cluster/base/file_system.h"

namespace headsweep {
namespace {

constexpr std::string_view kLease = "lease-", kLost = "lost-", kAttempt = "attempt-", kClaim = "claim-";
constexpr int kTries = 5;  // chosen: each is lost only to somebody else's success

// 7 of "lease-7"; 0 for any other name.
int NumberAfter(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return 0;
  int number = 0;
  const auto parsed = std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
  return parsed.ec == std::errc() && parsed.ptr == name.data() + name.size() ? number : 0;
}

struct Found {
  std::vector<int> leases;
  int used = 0;  // the greatest number of an attempt, or of a lease that was lost
  int next() const { return 1 + (leases.empty() ? used : std::max(used, *std::max_element(leases.begin(), leases.end()))); }
};

Found Look(const std::string& trial) {
  Found found;
  for (const std::string& name : FileSystem::Real().List(trial)) {
    const int lease = NumberAfter(name, kLease);
    if (lease > 0) found.leases.push_back(lease);
    found.used = std::max({found.used, NumberAfter(name, kLost), NumberAfter(name, kAttempt)});
  }
  return found;
}

std::string LeasePath(const std::string& trial, int token) { return fmt::format("{}/{}{}", trial, kLease, token); }

// ESTALE: removed by another machine in this moment. It is as good as ENOENT.
bool IsGone(const IoError& error) { return error.error_number() == ENOENT || error.error_number() == ESTALE; }

std::optional<LeaseOwner> ReadOwner(const std::string& lease) {
  try {
    const std::string text = FileSystem::Real().ReadFile(lease + "/owner");
    return LeaseOwner{text.substr(0, text.find('\n'))};
  } catch (const IoError& error) {
    if (IsGone(error)) return std::nullopt;
    throw;
  }
}

// False when there is no `from`, or somebody has been there before. An NFS client may send a request twice when an answer
// is lost, and then report the error of the second: so what counts is what is there.
bool RenameDirectory(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) == 0) return true;
  const int error = errno;
  if (error == ENOENT || error == ENOTEMPTY || error == EEXIST || error == ESTALE) return false;
  throw IoError("rename " + from + " to", to, error);
}

// A directory that nobody knows, with the owner's name in it, to become the lease.
std::string Prepare(const std::string& trial, const LeaseOwner& owner) {
  const std::string path = fmt::format("{}/{}{}", trial, kClaim, BaseName(owner.launcher));
  for (const std::string& directory : {path, JoinPath(path, BaseName(owner.launcher))})
    if (::mkdir(directory.c_str(), 0755) != 0 && errno != EEXIST) throw IoError("mkdir", directory, errno);
  FileSystem::Real().WriteFile(path + "/owner", owner.launcher + "\n");
  return path;
}

void RemoveTree(const std::string& path) {
  try {
    FileSystem::Real().RemoveAll(path);
  } catch (const IoError& error) {
    // Somebody else removes it too, or NFS keeps a file that is still open: `headsweep gc` comes by.
    if (!IsGone(error) && error.error_number() != ENOTEMPTY && error.error_number() != EBUSY) throw;
  }
}

}  // namespace

Claim ClaimTrial(const std::string& trial, const LeaseOwner& owner, int least,
                 const std::function<bool(const std::string&)>& is_gone) {
  Claim claim;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const Found found = Look(trial);
    bool fenced = true;
    for (const int token : found.leases) {
      const std::string lease = LeasePath(trial, token);
      const std::optional<LeaseOwner> holder = ReadOwner(lease);
      // Without an owner it is being released. One of our own that we do not know of: its request was answered with an error.
      if (holder && *holder != owner && !is_gone(holder->launcher)) return {std::nullopt, holder->launcher, ""};
      if (!RenameDirectory(lease, fmt::format("{}/{}{}", trial, kLost, token))) fenced = false;
      if (holder && *holder != owner) claim.taken_from = holder->launcher;
    }
    if (!fenced) continue;  // somebody else was faster: look again
    const int token = std::max(least, found.next());
    const Lease lease{LeasePath(trial, token), JoinPath(LeasePath(trial, token), BaseName(owner.launcher)), token};
    const std::string prepared = Prepare(trial, owner);
    if (!RenameDirectory(prepared, lease.path) && ReadOwner(lease.path) != owner) {
      RemoveTree(prepared);
      continue;
    }
    // Between the look and the claim others may have had it, and lost it or given it back: then the number is used up. Two
    // leases at once: both see both, and both give way.
    const Found now = Look(trial);
    if (now.leases == std::vector<int>{token} && now.used < token && ReadOwner(lease.path) == owner) {
      claim.lease = lease;
      return claim;
    }
    if (ReadOwner(lease.path) == owner) Release(lease);
    for (const int other : now.leases) {
      if (other != token) claim.holder = ReadOwner(LeasePath(trial, other)).value_or(LeaseOwner{}).launcher;
    }
    if (!claim.holder.empty()) break;
  }
  return claim;
}

bool IsHeld(const Lease& lease, const LeaseOwner& owner) { return ReadOwner(lease.path) == owner; }

void Release(const Lease& lease) { RemoveTree(lease.path); }

std::optional<LeaseOwner> HolderOf(const std::string& trial) {
  for (const int token : Look(trial).leases) {
    if (const std::optional<LeaseOwner> owner = ReadOwner(LeasePath(trial, token))) return owner;
  }
  return std::nullopt;
}

}  // namespace headsweep
