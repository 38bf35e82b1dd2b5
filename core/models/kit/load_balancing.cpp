#include "models/kit/load_balancing.h"

#include <utility>

#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Tensor load_balancing_loss(const TensorList& gate_logits, std::int64_t num_experts, std::int64_t top_k,
                           const Tensor& attention_mask) {
  Context& context = gate_logits.front().context();
  const auto zeros = [&] { return empty(context, Op::zeros, {num_experts}, DType::float32); };
  Tensor tokens_per_expert_sum = zeros(), router_prob_sum = zeros(), total_rows, flat_mask;
  if (attention_mask) flat_mask = to(reshape(attention_mask, {attention_mask.numel()}), DType::float32);
  Tensor routing_weights;
  TopK best;  // `_, selected_experts`
  for (const Tensor& layer_gate : gate_logits) {
    routing_weights = softmax(layer_gate, context.autocast.enabled ? DType::float32 : layer_gate.dtype());
    best = topk(routing_weights, top_k);
    const std::int64_t selected = best.indices.numel();
    if (!attention_mask) {
      {
        Tensor as_int = empty(context, Op::to_copy, {selected}, DType::int32);
        const Tensor tokens_per_expert = empty(context, Op::histc, {num_experts}, DType::int32);
        as_int.reset();
        tokens_per_expert_sum = add(tokens_per_expert_sum, tokens_per_expert);
      }
      Tensor probabilities = to(routing_weights, DType::float32);
      const Tensor of_layer = sum(probabilities, {0}, false);
      probabilities.reset();
      router_prob_sum = add(router_prob_sum, of_layer);
    } else {
      {
        const Tensor tokens_per_expert = zeros();
        { const Tensor weights = repeat_interleave(flat_mask, top_k, 0); }  // scatter_add_
        tokens_per_expert_sum = add(tokens_per_expert_sum, tokens_per_expert);
      }
      {
        Tensor probabilities = to(routing_weights, DType::float32);
        Tensor unmasked = mul(probabilities, unsqueeze(flat_mask, -1));
        probabilities.reset();
        const Tensor of_layer = sum(unmasked, {0}, false);
        unmasked.reset();
        router_prob_sum = add(router_prob_sum, of_layer);
      }
      const Tensor rows = sum_all(flat_mask);
      total_rows = total_rows ? add(total_rows, rows) : add_scalar(rows);
    }
  }
  const auto per_row = [&](const Tensor& total) { return total_rows ? div(total, total_rows) : div_scalar(total); };
  const Tensor tokens_per_expert = per_row(tokens_per_expert_sum), router_prob_per_expert = per_row(router_prob_sum);
  Tensor product = mul(tokens_per_expert, unsqueeze(router_prob_per_expert, 0));
  const Tensor overall_loss = sum_all(product);
  product.reset();
  return mul_scalar(overall_loss);
}

void add_load_balancing(DecoderParts& parts, const ExpertsConfig& experts) {
  parts.kind = [](std::size_t i) { return static_cast<int>(i); };  // what a router gives is used outside of its layer
  parts.add_auxiliary_loss = [logits = experts.router_logits, num_experts = experts.num_experts,
                              top_k = experts.num_experts_per_tok](ModelOutputs& outputs, const ModelInputs& inputs,
                                                                   bool is_fused) {
    TensorList of_layers = std::exchange(logits->of_layers, {});
    if (of_layers.empty()) return;
    outputs.aux_loss = load_balancing_loss(of_layers, num_experts, top_k, inputs.attention_mask);
    if (outputs.loss) {
      const Tensor weighted = mul_scalar(outputs.aux_loss);
      outputs.loss = is_fused ? add(outputs.loss, weighted) : add_in_place(outputs.loss, weighted);
    }
    if (is_fused) return;
    for (Tensor& of_layer : of_layers) outputs.others.push_back(std::move(of_layer));
  };
}

}  // namespace oometer
