// The columns of /trials that depend on the sweep: the resolved configuration of each trial.
#pragma once

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

// One column for each key in the columns of train stages. A name that fixed has already is prefixed with
// "config_".
std::vector<TrialColumn> ChooseTrialColumns(const std::vector<CollectStage>& stages, const TableInfo& fixed);

}  // namespace headsweep
