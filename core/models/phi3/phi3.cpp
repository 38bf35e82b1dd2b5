#include "models/phi3/phi3.h"

#include <tuple>

#include "config/reader.h"
#include "models/kit/text_family.h"
#include "ops/ops.h"

namespace oometer {

TextConfig read_phi3_sizes(ConfigReader& reader, const TextConfig& defaults) {
  TextConfig c = read_text_sizes(reader, defaults);
  read_partial_rotary(reader, c, 1);
  c.residual_dropout = reader.number("resid_pdrop", 0, 0, 1);
  if (!reader.is_null("sliding_window")) c.sliding_window = reader.optional_integer("sliding_window").value_or(0);
  reader.ignore({"embd_pdrop", "original_max_position_embeddings", "attention_bias"});
  check_llama_heads(reader, c);
  return c;
}

namespace {

/// Phi3Attention: one projection makes queries, keys and values.
struct Phi3Attention {
  Phi3Attention(const Builder& builder, const TextConfig& c, const ModelOptions& options)
      : width(c.num_attention_heads * c.head_dim),
        kv_width(c.num_key_value_heads * c.head_dim),
        head_dim(c.head_dim),
        call(attention_call(c, options)),
        rotate(options.liger.rope ? rotate_with_liger : rotate_first),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, false);
    qkv_proj = Linear(builder.child("qkv_proj", "Linear"), c.hidden_size, width + 2 * kv_width, false);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    const Tensor qkv = qkv_proj(hidden_states);
    AttentionInputs states;
    states.query = slice(qkv, -1, 0, width);
    states.key = slice(qkv, -1, width, kv_width);
    states.value = slice(qkv, -1, width + kv_width, kv_width);
    for (Tensor* heads : {&states.query, &states.key, &states.value}) *heads = heads_of(*heads, head_dim);
    std::tie(states.query, states.key) = rotate(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear o_proj, qkv_proj;
  std::int64_t width, kv_width, head_dim;
  AttentionCall call;
  ApplyRotary rotate;
  std::size_t layer_idx;
  ModuleId module;
};

}  // namespace

std::unique_ptr<DecoderLayer> make_phi3_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                              std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, c.names->rms_norm), norm_of(options.liger, rms_norm), {c.hidden_size});
  };
  layer->self_attn = Phi3Attention(builder.child("self_attn", c.names->attention), c, options);
  layer->mlp = FusedMLP(builder.child("mlp", c.names->mlp), c, options.liger);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  layer->residual_dropout = c.residual_dropout;
  return layer;
}

}  // namespace oometer
