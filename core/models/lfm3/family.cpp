#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "config/reader.h"
#include "models/lfm2/lfm2.h"
#include "models/lfm3/lfm3.h"
#include "ops/ops.h"

/// transformers 5.23, models/lfm3/modeling_lfm3.py: LFM2 with layers that slide, gated heads and norms behind all.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Lfm3ForCausalLM", "Lfm3Model",   "Lfm3DecoderLayer",   "Lfm3Attention",
                                 "Lfm3MLP",         "Lfm3RMSNorm", "Lfm3RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"lfm3", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

/// layer_types of full_attention, sliding_attention and conv.
void read_types(ConfigReader& reader, Lfm3Config& c) {
  const std::int64_t window = reader.integer("sliding_window", 256);
  std::vector<std::string> types = reader.texts_of_layers("layer_types", c.num_hidden_layers);
  if (types.empty())
    for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
      types.emplace_back(i % 4 == 2 ? "full_attention" : i % 4 == 0 && i > 0 ? "sliding_attention" : "conv");
  c.sliding_window = window;
  for (const std::string& type : types) {
    c.mixer.layers.push_back(type == "conv");
    c.layer_windows.push_back(type == "sliding_attention" ? window : 0);
    if (type != "conv" && type != "sliding_attention" && type != "full_attention")
      reader.fail(
          "layer_types", "not-modelled",
          "found \"" + type + "\"; \"full_attention\", \"sliding_attention\" and \"conv\" are what this class knows");
  }
  for (const char* type : {"full_attention", "sliding_attention", "conv"})
    if (std::find(types.begin(), types.end(), type) == types.end())
      reader.fail("layer_types", "not-modelled",
                  "found no \"" + std::string(type) + "\"; a model without is not supported yet");
}

}  // namespace

Lfm3Config read_lfm3_config(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 128'000;
  d.hidden_size = 2048;
  d.intermediate_size = 7680;
  d.num_hidden_layers = 24;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 128'000;
  d.tie_word_embeddings = d.has_pad_token = true;
  Lfm3Config c{read_text_sizes(reader, d, 128)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.use_sandwich_norm = reader.boolean("use_sandwich_norm", true);
  c.use_attention_gate = reader.boolean("use_attention_gate", true);
  c.mixer.conv_kernel = reader.integer("conv_L_cache", 7);
  c.mixer.conv_bias = reader.boolean("conv_bias", false);
  read_types(reader, c);
  check_llama_heads(reader, c);
  reader.ignore({"norm_eps"});
  return c;
}

namespace {

struct Lfm3Attention {
  Lfm3Attention(const Builder& builder, const Lfm3Config& c, const ModelOptions& options)
      : head_dim(c.head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, c.output_bias);
    q_norm = Norm(builder.child("q_norm", kNames.rms_norm), rms_norm, {head_dim});
    k_norm = Norm(builder.child("k_norm", kNames.rms_norm), rms_norm, {head_dim});
    if (c.use_attention_gate)
      g_proj = Linear(builder.child("g_proj", "Linear"), c.hidden_size, c.num_attention_heads, false);
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions, const Tensor& mask) const {
    ModuleCall self(argument.context(), module);
    const Tensor hidden_states = self.argument(argument);
    const auto heads = [&](const Linear& projection) {
      const Tensor x = projection(hidden_states);
      return view(x, {x.size(0), x.size(1), x.size(2) / head_dim, head_dim});
    };
    AttentionInputs states;
    states.query = transpose(q_norm(heads(q_proj)), 1, 2);
    states.key = transpose(k_norm(heads(k_proj)), 1, 2);
    states.value = transpose(heads(v_proj), 1, 2);
    std::tie(states.query, states.key) = rotate_float32(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, mask);
    if (g_proj.weight) {
      const Shape joined = attention.output.sizes();
      attention.output = view(attention.output, {joined[0], joined[1], joined[2] / head_dim, head_dim});
      Tensor share;
      {
        const Tensor gate = g_proj(hidden_states);
        share = sigmoid(gate);
      }
      attention.output = mul(attention.output, unsqueeze(share, -1));
      attention.output = view(attention.output, joined);
    }
    attention.output = self.result(o_proj(attention.output));
    for (Tensor* name : {&states.query, &states.key, &states.value}) name->reset();  // as a frame lets its names go
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj, g_proj;
  Norm q_norm, k_norm;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const Lfm3Config& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, c.use_sandwich_norm ? sandwich_norm : pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  if (c.mixer.is_in(index))
    layer->self_attn = make_short_conv(builder.child("conv", "Lfm3ShortConv"), c);
  else
    layer->self_attn = Lfm3Attention(builder.child("self_attn", kNames.attention), c, options);
  layer->mlp = Lfm2MLP(builder.child("feed_forward", kNames.mlp), c.hidden_size, c.intermediate_size);
  layer->input_norm = norm("operator_norm");
  layer->feedforward_norm = norm("ffn_norm");
  if (!c.use_sandwich_norm) return layer;
  layer->attention_norm = norm("post_operator_norm");
  layer->output_norm = norm("post_ffn_norm");
  return layer;
}

}  // namespace

DecoderParts lfm3_text_parts(const Lfm3Config& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t i) {
    return make_layer(layer, config, options, i);
  };
  parts.rotary = embed_positions_float32;
  parts.rotary_by_type = true;
  return lfm2_parts(std::move(parts));
}

namespace family {
extern const Family lfm3 = text_family_of<Lfm3Config, read_lfm3_config, lfm3_text_parts>(
    kClasses, kBlocks, generating_traits_with<Feature::quantization>);
}  // namespace family

}  // namespace oometer
