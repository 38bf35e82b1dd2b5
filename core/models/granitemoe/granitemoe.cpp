#include "models/granitemoe/granitemoe.h"

#include "config/reader.h"
#include "nn/activation.h"
#include "ops/experts.h"
#include "ops/ops.h"

namespace oometer {

TextConfig read_granite_moe(ConfigReader& reader, const LlamaClassNames& names) {
  TextConfig d;
  d.names = &names;
  d.num_key_value_heads = 0;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  reader.ignore({"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"});
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_local_experts", "num_experts",
               {.num_experts = 8, .num_experts_per_tok = 2, .balances = true, .are_counted = false});
  c.experts.intermediate_size = c.intermediate_size;
  return c;
}

DecoderParts scale_granite_parts(DecoderParts parts) {
  parts.scale = mul_scalar;
  parts.scales_behind_masks = true;
  parts.logits = [](const Tensor& logits) { return div_scalar(logits); };
  parts.fused_states = div_scalar;
  return parts;
}

namespace {

/// GraniteMoeTopKRouter.forward: softmax of the best logits in float32, in the type of what came in.
Routing softmax_in_float32(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  {
    const Tensor logits = linear(hidden_states, router.weight, {});
    routing.router_logits = to(logits, DType::float32);
  }
  TopK best = topk(routing.router_logits, router.top_k);
  routing.topk_weights = softmax(best.values, DType::float32);
  routing.topk_weights = to(routing.topk_weights, hidden_states.dtype());
  routing.topk_indices = std::move(best.indices);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

}  // namespace

SparseMoeBlock make_granite_moe(const Builder& at, const TextConfig& c, const char* router, const char* experts) {
  SparseMoeBlock block(at);
  block.gate = Router(at.child("router", router), c, softmax_in_float32);
  block.experts = make_experts(at, experts, c, {.checkpoint = {}});
  return block;
}

GraniteMoeSharedMLP::GraniteMoeSharedMLP(const Builder& at, const TextConfig& c)
    : input_linear(at.child("input_linear", "Linear"), c.hidden_size, 2 * c.experts.shared_intermediate_size, false),
      output_linear(at.child("output_linear", "Linear"), c.experts.shared_intermediate_size, c.hidden_size, false),
      act_fn(c.hidden_act),
      module(at.module) {}

Tensor GraniteMoeSharedMLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = input_linear(call.argument(argument));
  const std::int64_t half = hidden_states.size(-1) / 2;
  const TensorList chunked = split(hidden_states, {half, half}, -1);
  {
    const Tensor activated = activate(act_fn, chunked[0]);
    hidden_states = mul(activated, chunked[1]);
  }
  return call.result(output_linear(hidden_states));
}

Tensor GraniteMoeLayer::operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                                   const Tensor& attention_mask) const {
  const ModuleScope scope(hidden_in.context(), module);
  Tensor residual = hidden_in;
  Tensor hidden_states = input_layernorm(hidden_in);
  AttentionOutputs attention = self_attn(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);
  const auto onto_residual = [&] {
    const Tensor scaled = mul_scalar(hidden_states);
    hidden_states = add(residual, scaled);
  };
  onto_residual();
  residual = hidden_states;
  hidden_states = post_attention_layernorm(hidden_states);
  Tensor moe_hidden_states;
  if (block_sparse_moe) moe_hidden_states = (*block_sparse_moe)(hidden_states);
  if (!shared_mlp) {
    hidden_states = moe_hidden_states;
  } else if (!block_sparse_moe) {
    hidden_states = (*shared_mlp)(hidden_states);
  } else {
    const Tensor shared = (*shared_mlp)(hidden_states);
    hidden_states = add(moe_hidden_states, shared);
  }
  onto_residual();
  return hidden_states;
}

}  // namespace oometer
