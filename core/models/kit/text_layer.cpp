#include "models/kit/text_layer.h"

#include <utility>

#include "models/llama/llama.h"
#include "nn/activation.h"
#include "ops/liger.h"
#include "ops/ops.h"

namespace oometer {

FusedMLP::FusedMLP(const Builder& builder, const LlamaConfig& config, const LigerConfig& kernels)
    : gate_up_proj(builder.child("gate_up_proj", "Linear"), config.hidden_size, 2 * config.intermediate_size, false),
      down_proj(builder.child("down_proj", "Linear"), config.intermediate_size, config.hidden_size, false),
      act_fn(config.hidden_act),
      liger(kernels.swiglu),
      module(builder.module) {}

Tensor FusedMLP::operator()(const Tensor& hidden_states) const {
  ModuleCall call(hidden_states.context(), module);
  Tensor up_states = gate_up_proj(call.argument(hidden_states)), gate;
  const std::int64_t half = up_states.size(-1) / 2;
  {
    const TensorList halves = split(up_states, {half, half}, -1);
    gate = halves[0];
    up_states = halves[1];
  }
  if (liger) {
    const Tensor product = liger_silu_mul(gate, up_states);
    return call.result(down_proj(product));
  }
  {
    const Tensor activated = activate(act_fn, gate);
    up_states = mul(up_states, activated);
  }
  return call.result(down_proj(up_states));
}

PlainMLP::PlainMLP(const Builder& builder, const TextConfig& config, const char* up, const char* down, bool bias,
                   const char* type)
    : up_proj(builder.child(up, type), config.hidden_size, config.intermediate_size, bias),
      down_proj(builder.child(down, type), config.intermediate_size, config.hidden_size, bias),
      act_fn(config.hidden_act),
      residual_dropout(config.residual_dropout),
      module(builder.module) {}

Tensor PlainMLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  Tensor hidden_states = up_proj(call.argument(argument));
  hidden_states = liger ? liger_relu_squared(hidden_states) : activate(act_fn, hidden_states);
  hidden_states = down_proj(hidden_states);
  return call.result(dropout(hidden_states, residual_dropout));
}

namespace {

/// `residual + dropout(hidden_states)`, or `residual + hidden_states * residual_multiplier`.
Tensor onto(const TextLayer& layer, const Tensor& residual, const Tensor& hidden_states) {
  const Tensor added =
      layer.scales_residual ? mul_scalar(hidden_states) : dropout(hidden_states, layer.residual_dropout);
  return add(residual, added);
}

}  // namespace

Tensor pre_norm(const TextLayer& layer, const Tensor& hidden_in, const PositionEmbeddings& positions,
                const Tensor& attention_mask) {
  Tensor residual = hidden_in;
  Tensor hidden_states = layer.input_norm(hidden_in);
  AttentionOutputs attention = layer.self_attn(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  hidden_states = onto(layer, residual, hidden_states);
  residual = hidden_states;
  hidden_states = layer.feedforward_norm(hidden_states);
  hidden_states = layer.mlp(hidden_states);
  return onto(layer, residual, hidden_states);
}

namespace {

std::unique_ptr<TextLayer> make_pre_norm_layer(const Builder& builder, const TextConfig& config,
                                               const ModelOptions& options, const AttentionParts& attention,
                                               const std::function<TextLayer::MLP(const Builder& layer)>& make_mlp,
                                               Norm::Forward norm) {
  const LlamaClassNames& names = *config.names;
  const auto with_liger = norm_of(options.liger, norm);
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  layer->self_attn = TextAttention(builder.child("self_attn", names.attention), config, options, attention);
  layer->mlp = make_mlp(builder);
  layer->input_norm = Norm(builder.child("input_layernorm", names.rms_norm), with_liger, {config.hidden_size});
  layer->feedforward_norm =
      Norm(builder.child("post_attention_layernorm", names.rms_norm), with_liger, {config.hidden_size});
  return layer;
}

}  // namespace

std::unique_ptr<TextLayer> pre_norm_layer(const Builder& builder, const TextConfig& config, const ModelOptions& options,
                                          const AttentionParts& attention,
                                          const std::function<TextLayer::MLP(const Builder& layer)>& make_mlp) {
  return make_pre_norm_layer(builder, config, options, attention, make_mlp, rms_norm);
}

std::unique_ptr<TextLayer> pre_norm_layer(const Builder& builder, const TextConfig& config, const ModelOptions& options,
                                          const AttentionParts& attention, Norm::Forward norm) {
  const auto llama_mlp = [&](const Builder& layer) {
    return LlamaMLP(layer.child("mlp", config.names->mlp), config, options.liger);
  };
  return make_pre_norm_layer(builder, config, options, attention, llama_mlp, norm);
}

Tensor post_norm(const TextLayer& layer, const Tensor& hidden_in, const PositionEmbeddings& positions,
                 const Tensor& attention_mask) {
  Tensor residual = hidden_in;
  AttentionOutputs attention = layer.self_attn(hidden_in, positions, attention_mask);
  Tensor hidden_states = std::move(attention.output);
  hidden_states = layer.attention_norm(hidden_states);
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = layer.mlp(hidden_states);
  hidden_states = layer.output_norm(hidden_states);
  return add(residual, hidden_states);
}

Tensor sandwich_norm(const TextLayer& layer, const Tensor& hidden_in, const PositionEmbeddings& positions,
                     const Tensor& attention_mask) {
  Tensor residual = hidden_in;
  Tensor hidden_states = layer.input_norm(hidden_in);
  AttentionOutputs attention = layer.self_attn(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);
  hidden_states = layer.attention_norm(hidden_states);
  hidden_states = add(residual, hidden_states);
  residual = hidden_states;
  hidden_states = layer.feedforward_norm(hidden_states);
  hidden_states = layer.mlp(hidden_states);
  hidden_states = layer.output_norm(hidden_states);
  return add(residual, hidden_states);
}

Tensor parallel(const TextLayer& layer, const Tensor& residual, const PositionEmbeddings& positions,
                const Tensor& attention_mask) {
  const Tensor hidden_states = layer.input_norm(residual);
  const AttentionOutputs attention = layer.self_attn(hidden_states, positions, attention_mask);
  Tensor hidden_states_mlp = layer.mlp(hidden_states);
  hidden_states_mlp = dropout(hidden_states_mlp, layer.residual_dropout);
  const Tensor sum = add(residual, attention.output);
  return add(sum, hidden_states_mlp);
}

}  // namespace oometer
