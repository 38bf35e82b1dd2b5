#include "distributed/fsdp2_reference.h"

#include "train/objectives/fused_lm_head.h"

namespace oometer {

namespace {

ParallelConfig as_one_group(ParallelConfig parallel) {
  parallel.fsdp.by_accelerate = false;
  parallel.fsdp.wrap.clear();
  return parallel;
}

}  // namespace

FullyShardedReference::FullyShardedReference(Context& context, Model& model, const TrainingConfig& training,
                                             const ParallelConfig& parallel)
    : model_(model), parallel_(as_one_group(parallel)), shards_(context, model, training, parallel_, 1) {
  shards_.initialize();
  model.refusal = shards_.refusal();
}

ModelOutputs FullyShardedReference::operator()(const ModelInputs& inputs) {
  ModelInputs given = inputs;
  shards_.before_forward(given, true);
  ModelOutputs outputs = model_.forward(given);
  outputs.others = {};  // a FusedCausalLMOutput has nothing else of what the backbone returned
  after_fused_forward(shards_, static_cast<const FusedLmHead&>(*model_.loss_function).output, outputs);
  return outputs;
}

}  // namespace oometer
