#include "distributed/trainer.h"

#include "distributed/ddp.h"
#include "distributed/fsdp1.h"
#include "distributed/fsdp2.h"
#include "distributed/zero_1_and_2.h"
#include "distributed/zero_3.h"

namespace oometer {

std::unique_ptr<Trainer> make_trainer(Context& context, Model& model, const TrainingConfig& training,
                                      const ParallelConfig& parallel, std::int64_t usable_bytes,
                                      std::vector<ZeroParameter> parameters) {
  if (parallel.strategy == Strategy::deepspeed && parallel.deepspeed.zero_stage == 3)
    return std::make_unique<DeepSpeedZeroOptimizerStage3>(context, model, training, parallel, std::move(parameters));
  if (parallel.strategy == Strategy::deepspeed)
    return std::make_unique<DeepSpeedZeroOptimizer>(context, model, training, parallel, usable_bytes);
  if (parallel.strategy == Strategy::fsdp1)
    return std::make_unique<FullyShardedDataParallel>(context, model, training, parallel);
  if (parallel.strategy == Strategy::fsdp2) return std::make_unique<FullyShard>(context, model, training, parallel);
  if (parallel.strategy == Strategy::ddp)
    return std::make_unique<DistributedDataParallel>(context, model, training, parallel.ddp);
  return std::make_unique<Trainer>(context, model, training);
}

}  // namespace oometer
