#include <tuple>

#include "config/reader.h"
#include "models/kit/text_family.h"
#include "nn/activation.h"
#include "ops/ops.h"

/// transformers 5.23, models/bitnet/modeling_bitnet.py: Llama, with a norm of what attention gives and of what the
/// MLP's last projection gets.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"BitNetForCausalLM", "BitNetModel",   "BitNetDecoderLayer",   "BitNetAttention",
                                 "BitNetMLP",         "BitNetRMSNorm", "BitNetRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"bitnet", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 128'256;
  d.hidden_size = 2560;
  d.intermediate_size = 6912;
  d.num_hidden_layers = 30;
  d.num_attention_heads = 20;
  d.num_key_value_heads = 5;
  d.max_position_embeddings = 2048;
  d.hidden_act = Activation::relu2;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  if (c.num_attention_heads * c.head_dim != c.hidden_size)
    reader.fail_found("hidden_size", "inconsistent",
                      "what all heads give is normalised by a weight of hidden_size elements: expected "
                      "num_attention_heads times the size of a head");
  return c;
}

/// BitNetAttention.
struct SubNormAttention {
  SubNormAttention(const Builder& at, const TextConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim), call(attention_call(c, options)), layer_idx(layer_index(at)), module(at.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(at.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(at.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(at.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(at.child("o_proj", "Linear"), width, c.hidden_size, c.output_bias);
    attn_sub_norm = Norm(at.child("attn_sub_norm", kNames.rms_norm), rms_norm, {c.hidden_size});
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = attn_sub_norm(attention.output);
    attention.output = self.result(o_proj(attention.output));
    for (Tensor* name : {&states.query, &states.key, &states.value}) name->reset();  // as a frame lets its names go
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  Norm attn_sub_norm;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

/// BitNetMLP.
struct SubNormMLP {
  SubNormMLP(const Builder& at, const TextConfig& c)
      : gate_proj(at.child("gate_proj", "Linear"), c.hidden_size, c.intermediate_size, false),
        up_proj(at.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, false),
        down_proj(at.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, false),
        ffn_sub_norm(at.child("ffn_sub_norm", kNames.rms_norm), rms_norm, {c.intermediate_size}),
        act_fn(c.hidden_act),
        module(at.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor product = gate_proj(x);
    product = activate(act_fn, product);
    {
      const Tensor up = up_proj(x);
      product = mul(product, up);
    }
    product = ffn_sub_norm(product);
    return call.result(down_proj(product));
  }

  Linear gate_proj, up_proj, down_proj;
  Norm ffn_sub_norm;
  Activation act_fn;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  layer->self_attn = SubNormAttention(builder.child("self_attn", kNames.attention), c, options);
  layer->mlp = SubNormMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->feedforward_norm = Norm(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family bitnet =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
