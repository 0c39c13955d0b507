// The columns of /trials that depend on the sweep: the resolved configuration of each trial.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "results/collect.h"
#include "results/rows.h"

namespace headsweep {

struct TrialColumn {
  std::string source;  // key in CollectStage::columns
  Column column;       // kInt if every trial has an integer, kReal if numbers or gaps (NaN), kText otherwise
                       // (gaps: "")

  void AddCell(const CollectStage& stage, RowBlock& block) const;
};

// One column for each key in the columns of train stages.
class TrialColumns {
 public:
  void Look(const CollectStage& stage);  // every stage, before Choose
  // A name that fixed has already is prefixed with "config_".
  std::vector<TrialColumn> Choose(const TableInfo& fixed) const;

 private:
  struct Seen {
    std::int64_t trials = 0;
    bool text = false, real = false;
  };
  std::map<std::string, Seen> seen_;  // by key
  std::int64_t trials_ = 0;
};

}  // namespace headsweep
