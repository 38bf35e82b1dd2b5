#pragma once

#include <memory>

#include "distributed/config.h"
#include "distributed/zero_init.h"
#include "train/step.h"

namespace oometer {

/// The strategy that a parallel configuration asks for. `usable_bytes` is what the device gives to this process:
/// DeepSpeed asks for it at initialisation. `parameters` are those that a ZeroInit has cut. Strategies that are not
/// modelled yet were refused by the job's validation.
std::unique_ptr<TrainingStrategy> make_strategy(Context& context, Model& model, const TrainingConfig& training,
                                                const ParallelConfig& parallel, std::int64_t usable_bytes,
                                                std::vector<ZeroParameter> parameters = {});
/// The same where a GPU holds parts of the parameters: ZeRO-3, FSDP1, FSDP2.
std::unique_ptr<TrainingStrategy> make_sharding_strategy(Context& context, Model& model, const TrainingConfig& training,
                                                         const ParallelConfig& parallel,
                                                         std::vector<ZeroParameter> parameters);

}  // namespace oometer
