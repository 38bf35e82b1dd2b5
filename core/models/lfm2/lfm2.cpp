#include "models/lfm2/lfm2.h"

#include "config/reader.h"
#include "nn/activation.h"
#include "ops/ops.h"

namespace oometer {

namespace {

/// Lfm2ShortConv.
struct ShortConv {
  ShortConv(const Builder& builder, const TextConfig& c)
      : conv(builder.child("conv", "Conv1d"), c.hidden_size, c.mixer.conv_kernel, c.mixer.conv_bias),
        in_proj(builder.child("in_proj", "Linear"), c.hidden_size, 3 * c.hidden_size, c.mixer.conv_bias),
        out_proj(builder.child("out_proj", "Linear"), c.hidden_size, c.hidden_size, c.mixer.conv_bias),
        layer_idx(layer_index(builder)),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& argument, const Tensor& attention_mask) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = apply_mask_to_padding_states(call.argument(argument), attention_mask);
    const std::int64_t hidden = hidden_states.size(2);
    const Tensor bcx = transpose(in_proj(hidden_states), 1, 2);
    const TensorList parts = split(bcx, {hidden, hidden, hidden}, 1);
    hidden_states = mul(parts[0], parts[2]);
    hidden_states = conv(std::move(hidden_states), std::nullopt, layer_idx);
    Tensor y = mul(parts[1], hidden_states);
    y = contiguous(transpose(y, 1, 2));
    return {call.result(out_proj(y)), {}};
  }

  CausalConv conv;
  Linear in_proj, out_proj;
  std::size_t layer_idx;
  ModuleId module;
};

}  // namespace

Lfm2MLP::Lfm2MLP(const Builder& builder, std::int64_t hidden_size, std::int64_t intermediate_size)
    : w1(builder.child("w1", "Linear"), hidden_size, intermediate_size, false),
      w3(builder.child("w3", "Linear"), hidden_size, intermediate_size, false),
      w2(builder.child("w2", "Linear"), intermediate_size, hidden_size, false),
      module(builder.module) {}

Tensor Lfm2MLP::operator()(const Tensor& argument) const {
  ModuleCall call(argument.context(), module);
  const Tensor x = call.argument(argument);
  Tensor product;
  {
    Tensor gate = w1(x);
    gate = silu(gate);
    const Tensor up = w3(x);
    product = mul(gate, up);
  }
  return call.result(w2(product));
}

std::function<AttentionOutputs(const Tensor&, const PositionEmbeddings&, const Tensor&)> make_short_conv(
    const Builder& builder, const TextConfig& c) {
  return [conv = ShortConv(builder, c)](const Tensor& hidden_states, const PositionEmbeddings&, const Tensor& mask) {
    return conv(hidden_states, mask);
  };
}

std::unique_ptr<DecoderLayer> make_lfm2_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                              std::size_t index, const char* short_conv,
                                              const MakeFeedForward& make_feed_forward) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  if (c.mixer.is_in(index)) {
    layer->self_attn = make_short_conv(builder.child("conv", short_conv), c);
  } else {
    AttentionParts its;
    its.norms_at = HeadNorms::projected;
    its.norm = rms_norm;
    its.norm_type = c.names->rms_norm;
    its.q_norm = "q_layernorm";
    its.k_norm = "k_layernorm";
    its.o_proj = "out_proj";
    layer->self_attn = TextAttention(builder.child("self_attn", c.names->attention), c, options, its);
  }
  layer->mlp = make_feed_forward(builder);
  layer->input_norm = Norm(builder.child("operator_norm", c.names->rms_norm), rms_norm, {c.hidden_size});
  layer->feedforward_norm = Norm(builder.child("ffn_norm", c.names->rms_norm), rms_norm, {c.hidden_size});
  return layer;
}

TextConfig read_lfm2_text(ConfigReader& reader, const TextConfig& defaults) {
  TextConfig c = read_text_sizes(reader, defaults);
  c.attention_dropout = 0;  // the class has none
  c.tie_word_embeddings = reader.boolean("tie_embedding", c.tie_word_embeddings);
  check_llama_heads(reader, c);
  c.mixer.kernels = Kernels::causal_conv1d;
  c.mixer.conv_kernel = reader.integer("conv_L_cache", 3);
  c.mixer.conv_bias = reader.boolean("conv_bias", false);
  reader.ignore({"norm_eps", "block_norm_eps", "conv_dim", "conv_dim_out", "conv_use_xavier_init", "block_dim",
                 "block_mlp_init_scale", "block_out_init_scale", "block_use_swiglu", "block_use_xavier_init",
                 "use_pos_enc", "theta"});
  return c;
}

DecoderParts lfm2_parts(DecoderParts parts) {
  parts.last_norm = "embedding_norm";
  return parts;
}

}  // namespace oometer
