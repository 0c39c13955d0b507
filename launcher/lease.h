// Lease: the right of one launcher to work on one trial, when several launchers share a sweep (launcher/LEASES.md).
// A directory <workspace>/trials/<id>/lease-<token> that holds the file "owner" and a directory with the holder's name. token is the number of the attempt, and
// rises with every lease of the trial: it is the fencing token. All is done by operations that are atomic on a file
// server, also over NFS: mkdir, and rename of a directory, which refuses a target that is not empty.
//
//   claim    <own directory> -> lease-<token>     whoever comes second gets ENOTEMPTY
//   fence    lease-<token>   -> lost-<token>      by whoever takes a trial over from a launcher that is gone
//   seal     through lease-<token>/<holder>/      SealInPlace: cannot be done any more once it has been fenced
//   release  lease-<token> removed
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace headsweep {

struct Lease {
  std::string path;   // <trial>/lease-<token>
  std::string fence;  // the directory in it that the attempt seals through
  int token = 0;
};

struct LeaseOwner {
  std::string launcher;  // its directory, from the workspace's root: "sweeps/s/launchers/node7-4711-3fa0"
  bool operator==(const LeaseOwner&) const = default;
};

struct Claim {
  std::optional<Lease> lease;  // granted
  std::string holder;          // LeaseOwner::launcher of whoever has it; "" if that is not known (any more)
  std::string taken_from;      // whose lease was fenced
};

// Claims the trial, whose directory exists. The token is at least `least`, and greater than that of every lease that is
// held or was lost and of every attempt-<n> there is; a holder that starts something makes its attempt-<token> first. is_gone: whether a launcher is known to be gone, so that its lease may be taken.
// Not granted is no error: somebody else has it, or just had it; try again later. Throws IoError.
Claim ClaimTrial(const std::string& trial_directory, const LeaseOwner& owner, int least,
                 const std::function<bool(const std::string& launcher)>& is_gone);

// Whether the lease is still the owner's. Throws IoError when that cannot be told.
bool IsHeld(const Lease& lease, const LeaseOwner& owner);

// Gives it back; a lease that was lost stays lost. Nothing of the attempt may run any more. Throws IoError.
void Release(const Lease& lease);

// The owner of the trial's lease; nullopt: nobody has it.
std::optional<LeaseOwner> HolderOf(const std::string& trial_directory);

}  // namespace headsweep
