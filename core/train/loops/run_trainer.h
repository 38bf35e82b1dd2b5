#pragma once

#include <vector>

#include "train/step.h"

namespace oometer {

/// The loop of a library's trainer, whose name is not LoopName::step; else as run_training.
void run_trainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy,
                 const Objective& objective, const TrainingConfig& training, const DataConfig& data,
                 const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation);

}  // namespace oometer
