#include "train/optimizers/bitsandbytes.h"

#include <string_view>

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "train/optimizers/classes.h"

namespace oometer {

OptimizerState BitsAndBytes::make_state(const Parameter& parameter) {
  constexpr std::int64_t kMin8bitSize = 4096, kBlock = 256;
  // HF Trainer keeps embeddings at 32 bits (create_optimizer: GlobalOptimManager.register_module_override) where the
  // class is bitsandbytes' own.
  const bool is_embedding = config_.name != OptimizerName::galore_adamw_8bit &&
                            context_.log.modules[parameter.module].type == std::string_view("Embedding");
  const bool is_8bit = config_.implementation == OptimizerImplementation::bnb_8bit && !is_embedding &&
                       parameter.tensor.numel() >= kMin8bitSize;
  const DType dtype = is_8bit ? DType::uint8 : DType::float32;
  const std::int64_t blocks = (parameter.tensor.numel() + kBlock - 1) / kBlock;
  if (is_8bit) make_qmaps();
  State state;
  const auto add_zeros = [&](const Shape& sizes) {
    state.push_back(empty(context_, Op::zeros, sizes, DType::float32, Role::optimizer_state));
  };
  if (config_.name == OptimizerName::ademamix) {
    if (is_8bit) add_zeros({2, blocks});
    if (is_8bit) add_zeros({blocks});
    state.push_back(get_state_buffer(parameter.tensor, dtype, 2));
    state.push_back(get_state_buffer(parameter.tensor, dtype));
    return state;
  }
  state.push_back(get_state_buffer(parameter.tensor, dtype));
  if (has_two_states()) state.push_back(get_state_buffer(parameter.tensor, dtype));
  if (is_8bit) add_zeros({blocks});
  if (is_8bit && has_two_states()) add_zeros({blocks});
  // max_unorm is LAMB's 1; GaLore's class gives its percentile_clipping in that place
  if (config_.name == OptimizerName::lamb || config_.name == OptimizerName::galore_adamw_8bit) add_zeros({1});
  return state;
}

/// name2qmap: 256 numbers each
void BitsAndBytes::make_qmaps() {
  if (qmap_) return;
  qmap_ = empty(context_, Op::to_copy, {256}, DType::float32, Role::optimizer_state);
  if (has_two_states()) unsigned_qmap_ = empty(context_, Op::to_copy, {256}, DType::float32, Role::optimizer_state);
}

/// `count`: of AdEMAMix's two averages, in one.
Tensor BitsAndBytes::get_state_buffer(const Tensor& parameter, DType dtype, std::int64_t count) {
  constexpr std::int64_t kLeastPaged = 100'000;
  if (config_.paged && parameter.numel() >= kLeastPaged) {
    paged_bytes_ += checked_product(parameter.numel(), count * element_size(dtype));
    return {};
  }
  Shape sizes = parameter.sizes();
  if (count > 1) sizes.insert(0, count);
  return empty(context_, count > 1 ? Op::zeros : Op::zeros_like, sizes, dtype, Role::optimizer_state);
}

void BitsAndBytes::update(Group& group) {
  std::int64_t read = 0, written = 0;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const Tensor& tensor = group.parameters[i].tensor;
    if (!tensor->grad) continue;
    written += touched(tensor);
    for (const Tensor& state : group.states[i]) written += touched(state);
    read += touched(tensor->grad);
  }
  if (written == 0) return;
  context_.work({.op = static_cast<OpId>(Op::fused_adam),
                 .kind = WorkKind::optimizer,
                 .dtype = group.parameters.front().tensor.dtype(),
                 .read = read + written,
                 .written = written});
}

std::unique_ptr<Optimizer> make_bitsandbytes(Context& context, const OptimizerConfig& config) {
  return std::make_unique<BitsAndBytes>(context, config);
}

}  // namespace oometer
