#pragma once

#include "distributed/fsdp2.h"

namespace oometer {

/// What trl's prepare_fsdp (1.16, models/utils.py) makes of a reference under FSDP2: fully_shard on a model in host
/// memory as a whole, which is one group. Its loss_function is a FusedLmHead.
class FullyShardedReference {
 public:
  FullyShardedReference(Context& context, Model& model, const TrainingConfig& training, const ParallelConfig& parallel);

  ModelOutputs operator()(const ModelInputs& inputs);

 private:
  Model& model_;
  ParallelConfig parallel_;
  FullyShard shards_;
};

}  // namespace oometer
