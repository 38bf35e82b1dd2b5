#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "models/muse_glimmer/muse_glimmer.h"
#include "nn/attention.h"

/// The language model. Names and order of steps are the modeling file's.
namespace oometer {

TextConfig read_muse_glimmer_text(ConfigReader& reader) {
  TextConfig d;
  d.names = &kMuseGlimmerNames;
  d.vocab_size = 202'048;
  d.hidden_size = 6656;
  d.intermediate_size = 19'968;
  d.num_hidden_layers = 52;
  d.num_attention_heads = 32;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.hidden_act = reader.activation("hidden_activation", d.hidden_act);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.softcaps_logits = true;
  if (c.hidden_size % c.num_attention_heads != 0)  // validate_architecture
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  check_llama_heads(reader, c);
  read_mixed_layers(reader, c, 4, 2048);
  // Where the config has no list of its own every fourth layer, from the last one back, sees all, and has no positions.
  const auto is_fourth = [&](std::size_t i) {
    return (c.num_hidden_layers - 1 - static_cast<std::int64_t>(i)) % 4 == 0;
  };
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  if (!reader.has("layer_types"))
    for (std::size_t i = 0; i < layers; ++i) c.layer_windows[i] = is_fourth(i) ? 0 : c.sliding_window;
  const std::vector<std::int64_t> thetas = reader.integers("layer_rope_theta", {0, std::int64_t{1} << 52});
  if (!thetas.empty() && thetas.size() != layers)
    reader.fail("layer_rope_theta", "inconsistent",
                "found " + std::to_string(thetas.size()) + " numbers; expected num_hidden_layers (" +
                    std::to_string(layers) + ") of them");
  for (std::size_t i = 0; i < layers; ++i) c.rotates.push_back(i < thetas.size() ? thetas[i] != 0 : !is_fourth(i));
  reader.ignore({"model_type", "final_logit_softcapping", "output_multiplier", "post_norm_eps", "qk_scale_factor"});
  return c;
}

namespace {

struct MuseGlimmerTextAttention {
  MuseGlimmerTextAttention(const Builder& builder, const TextConfig& c, const ModelOptions& options, std::size_t index)
      : head_dim(c.head_dim),
        rotates(c.rotates_in(index)),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, c.output_bias);
    gate_proj = Linear(builder.child("gate_proj", "Linear"), c.hidden_size, width, false);
    qk_norm.module = builder.child("qk_norm", "MuseGlimmerRMSNorm").module;
    qk_norm.forward = rms_norm_by_pow;
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    {
      const Tensor normalised = qk_norm(states.query);
      states.query = mul_scalar(normalised);
    }
    states.key = qk_norm(states.key);
    if (rotates) std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    {
      const Tensor share = [&] {
        const Tensor gate = gate_proj(hidden_states);
        return sigmoid(gate);
      }();
      attention.output = mul(attention.output, share);
    }
    attention.output = self.result(o_proj(attention.output));
    for (Tensor* name : {&states.query, &states.key, &states.value}) name->reset();  // as a frame lets its names go
    return attention;
  }

  std::int64_t head_dim;
  bool rotates;
  Linear q_proj, k_proj, v_proj, o_proj, gate_proj;
  Norm qk_norm;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_muse_glimmer_layer(const Builder& builder, const TextConfig& c,
                                                      const ModelOptions& options, std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, sandwich_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, "MuseGlimmerTextCenteredRMSNorm"), rms_norm_one_plus, {c.hidden_size});
  };
  layer->self_attn = MuseGlimmerTextAttention(builder.child("self_attn", c.names->attention), c, options, index);
  layer->mlp = LlamaMLP(builder.child("mlp", c.names->mlp), c);
  layer->input_norm = norm("input_layernorm");
  layer->attention_norm = norm("post_attention_layernorm");
  layer->feedforward_norm = norm("pre_feedforward_layernorm");
  layer->output_norm = norm("post_feedforward_layernorm");
  return layer;
}

}  // namespace

DecoderParts muse_glimmer_text_parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_muse_glimmer_layer);
  complete_parts(parts, config);
  parts.norm = final_norm(rms_norm_by_pow);
  parts.logits = [](Tensor logits) {
    logits = mul_scalar(logits);  // output_multiplier
    return softcap(std::move(logits));
  };
  return parts;
}

}  // namespace oometer
