#include "distributed/fsdp1.h"
#include "distributed/fsdp2.h"
#include "distributed/strategy.h"
#include "distributed/zero_3.h"

namespace oometer {

std::unique_ptr<TrainingStrategy> make_sharding_strategy(Context& context, Model& model, const TrainingConfig& training,
                                                         const ParallelConfig& parallel,
                                                         std::vector<ZeroParameter> parameters) {
  if (parallel.strategy == Strategy::deepspeed)
    return std::make_unique<DeepSpeedZeroOptimizerStage3>(context, model, training, parallel, std::move(parameters));
  if (parallel.strategy == Strategy::fsdp1)
    return std::make_unique<FullyShardedDataParallel>(context, model, training, parallel);
  return std::make_unique<FullyShard>(context, model, training, parallel);
}

}  // namespace oometer
