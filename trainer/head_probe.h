// ModelProbe: answers what pruning orders ask, by running the trained model over a sample of examples.
// Not here: which head goes first (head_orders.h).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "data/batches.h"
#include "kernels/backend.h"
#include "results/tables.h"
#include "trainer/batch_passes.h"
#include "trainer/head_orders.h"
#include "trainer/model.h"

namespace headsweep {

class ModelProbe final : public HeadProbe {
 public:
  // per: "example" | "token" (ConfigError otherwise), over what |.| of the importance is taken. All arguments
  // must outlive the probe. Models are made when they are needed and freed after each answer.
  ModelProbe(Backend& backend, BatchPasses& passes, const ModelShape& shape,
             const std::vector<float>& parameters, std::span<const Batch> sample, const std::string& per);

  const ModelShape& shape() const override { return shape_; }
  // Scores the model with `removed` cut out; indices of what is left are mapped back to the trained model.
  std::vector<double> Importance(const std::vector<HeadIndex>& removed) override;
  // One forward pass over the sample for each head, its gate at 0, and one with all heads.
  std::vector<double> AblationLosses() override;
  std::vector<double> Magnitudes() override;

  // What was measured along the way, for the tables; empty if no order asked.
  //   importance: of the whole model; step and normalized are left for the caller
  const std::vector<ImportanceRow>& importance() const { return importance_; }
  const std::vector<AblationRow>& ablation() const { return ablation_; }

 private:
  Backend& backend_;
  BatchPasses& passes_;
  const ModelShape& shape_;
  const std::vector<float>& parameters_;
  std::span<const Batch> sample_;
  bool per_token_;
  std::vector<ImportanceRow> importance_;
  std::vector<AblationRow> ablation_;
};

}  // namespace headsweep
