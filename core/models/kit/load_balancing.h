#pragma once

#include <cstdint>
#include <memory>

#include "models/kit/text_family.h"
#include "models/model.h"
#include "tensor/tensor_list.h"

/// The loss that balances experts, and how it gets at the routers' logits.
namespace oometer {

/// What a model's routers gave in one forward, layer by layer: output_router_logits, by hooks on the routers
/// (transformers 5.23, utils/output_capturing.py). A block that is run again for its checkpoint adds nothing.
struct RouterLogits {
  TensorList of_layers;
};

/// load_balancing_loss_func (transformers 5.23, models/mixtral/modeling_mixtral.py; copies of it in other families).
/// `attention_mask`: [b, s] or null.
Tensor load_balancing_loss(const TensorList& gate_logits, std::int64_t num_experts, std::int64_t top_k,
                           const Tensor& attention_mask);

/// Lets the forward of `parts`, whose routers put their logits where `experts` says, add the loss behind its own
/// (MixtralForCausalLM.forward). TRL's fused head makes a new loss of the two, and returns no logits (trl 1.16,
/// trainer/utils.py, _fused_forward).
void add_load_balancing(DecoderParts& parts, const ExpertsConfig& experts);

/// `make_parts`, of a class that can balance its experts by a loss.
template <auto make_parts, typename Config = TextConfig>
DecoderParts balanced(const Config& config, const ModelOptions& options) {
  if (!options.output_router_logits.value_or(config.experts.outputs_router_logits)) return make_parts(config, options);
  Config collecting = config;
  collecting.experts.router_logits = std::make_shared<RouterLogits>();
  DecoderParts parts = make_parts(collecting, options);
  add_load_balancing(parts, collecting.experts);
  return parts;
}

}  // namespace oometer
