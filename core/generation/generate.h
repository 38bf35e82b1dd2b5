#pragma once

#include "generation/config.h"
#include "models/data.h"
#include "models/model.h"

namespace oometer {

/// Runs a conversation by `GenerationMixin.generate` (transformers 5.23, generation/utils.py), greedy and eager, into
/// the context's log: a prefill and a decode phase a turn. `every_step` false: where an answer is long, most of its
/// tokens are decoded as far as the cache is concerned only. `windows`: each layer's, 0 for
/// none; empty: no layer has one.
Generated run_generation(Context& context, Model& model, const ModelOptions& options, const DataConfig& data,
                         const InferenceConfig& inference, const std::vector<std::int64_t>& windows, bool every_step);

/// vLLM's forward of as many tokens as it batches, its pool with the blocks that the conversations need, and the same
/// forward beside it. `capacity`: of the GPU, by which vLLM's server chooses how many tokens.
Generated run_paged(Context& context, Model& model, const DataConfig& data, const InferenceConfig& inference,
                    std::int64_t capacity);

/// model(**batch) under no_grad, of a class that does not generate: one prefill.
void run_forward(Context& context, Model& model);

}  // namespace oometer
