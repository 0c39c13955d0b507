// One HDF5 file of one stage: written by one trainer process, read by `collect`. Two uses of one format:
//   attempt-<n>/metrics.h5  live: rows appended and flushed at each evaluation; readable after a kill
//   checkpoint/…/history.h5 and result.h5  complete: written whole, closed, checked
// <hdf5.h> stays inside results/. Every HDF5 call is checked; failures are IoError with path and HDF5's own message.
// Not thread-safe: one thread of a process at a time. Format: results/SCHEMA.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "results/tables.h"

namespace headsweep {

// Summary of a finished stage, small enough to be sent over a control channel and journaled.
struct StageSummary {
  std::string outcome = "finished";  // "finished" | "diverged"; read from a live file: "", its stage has not ended
  std::string digest;                // TablesDigest
  std::uint64_t weights_checksum = 0;
  std::int64_t parameters = 0;
  double flops_per_step = 0;         // training stages
  double valid_nll = 0, valid_perplexity = 0;  // last evaluation; perplexity per word
  double test_nll = 0, test_perplexity = 0;
  double train_seconds = 0;          // (t)
  std::int64_t peak_memory_bytes = 0;  // (t)
  std::string summary_line;          // one line for a person
};

// Writes a complete file at path (which must not be in use); does not seal: callers write to a temporary and use SealInPlace.
// The file is built in memory (a few times the tables' size) and written at once, so a full disk is IoError with ENOSPC.
void WriteStageFile(const std::string& path, const Provenance& provenance, const StageTables& tables,
                    const StageSummary& summary);

struct StageFile {
  Provenance provenance;
  StageTables tables;
  StageSummary summary;
};
// Throws IoError when the file is empty, truncated, damaged, foreign, or of another schema version (says which). A complete file's
// checksum is compared before HDF5 sees a byte of it.
StageFile ReadStageFile(const std::string& path);

// The live file of an attempt.
class LiveMetrics {
 public:
  LiveMetrics(const std::string& path, const Provenance& provenance);
  ~LiveMetrics();  // closes; never throws
  // Appends the rows of `tables` that are beyond those already written, then H5Fflush: they outlive a kill of this process
  // (not a power cut). tables must begin with the rows given before.
  void Append(const StageTables& tables);
  void Close();  // checked; the file then has size and checksum in its header

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace headsweep
