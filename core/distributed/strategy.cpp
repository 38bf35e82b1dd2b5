#include "distributed/strategy.h"

#include "distributed/ddp.h"
#include "distributed/zero_1_and_2.h"

namespace oometer {

std::unique_ptr<TrainingStrategy> make_strategy(Context& context, Model& model, const TrainingConfig& training,
                                                const ParallelConfig& parallel, std::int64_t usable_bytes,
                                                std::vector<ZeroParameter> parameters) {
  if (parallel.shards_parameters())
    return make_sharding_strategy(context, model, training, parallel, std::move(parameters));
  if (parallel.strategy == Strategy::deepspeed)
    return std::make_unique<DeepSpeedZeroOptimizer>(context, model, training, parallel, usable_bytes);
  if (parallel.strategy == Strategy::ddp)
    return std::make_unique<DistributedDataParallel>(context, model, training, parallel.ddp, parallel.world_size());
  return std::make_unique<TrainingStrategy>(context, model, training);
}

}  // namespace oometer
