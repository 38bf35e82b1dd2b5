#include "models/deepseek/family.h"

#include <memory>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/deepseek/deepseek.h"
#include "models/kimi_linear/delta_attention.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"

/// transformers 5.23, models/kimi_linear/modeling_kimi_linear.py: Kimi Delta Attention in most layers, DeepSeek-V3's
/// attention without positions in the others, and DeepSeek-V3's experts.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{{"KimiLinearForCausalLM", "KimiLinearModel", "KimiLinearDecoderLayer",
                                     "KimiLinearAttention", "KimiLinearMLP", "KimiLinearRMSNorm", ""},
                                    "KimiLinearMoE",
                                    "KimiLinearExperts",
                                    "KimiLinearTopkRouter",
                                    {.is_v3 = true}};
constexpr ModelClass kClasses[] = {{"kimi_linear", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct KimiLinearConfig : TextConfig {
  DeepseekConfig latent;  ///< of the layers with attention
  bool operator==(const KimiLinearConfig&) const = default;
};

/// linear_attn_config, as checkpoints have it: its sizes, and lists of layers that count from 1.
void read_linear_attention(ConfigReader& reader, KimiLinearConfig& c) {
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::linear_attention | Kernels::causal_conv1d;
  m.value_head_dim = reader.integer("linear_head_dim", 128);
  m.num_value_heads = reader.integer("linear_num_heads", 32);
  m.conv_kernel = reader.integer("linear_conv_kernel_dim", 4);
  std::vector<std::int64_t> attends, mixes;
  if (reader.is_object("linear_attn_config")) {
    ConfigReader its = reader.object("linear_attn_config");
    m.value_head_dim = its.integer("head_dim", m.value_head_dim);
    m.num_value_heads = its.integer("num_heads", m.num_value_heads);
    m.conv_kernel = its.integer("short_conv_kernel_size", m.conv_kernel);
    attends = its.integers("full_attn_layers");
    mixes = its.integers("kda_layers");
    its.finish();
  }
  m.num_key_heads = m.num_value_heads;
  m.key_head_dim = m.value_head_dim;
  const auto layers = static_cast<std::size_t>(c.num_hidden_layers);
  if (attends.empty() || mixes.empty() || !reader.texts("layer_types").empty()) {
    // the class's own: every fourth from the fifth on
    read_mixer_layers(reader, c, "linear_attention", 4);
    if (reader.texts("layer_types").empty())
      for (std::size_t i = 0; i < layers; ++i) m.layers[i] = i == 0 || i % 4 != 0;
    return;
  }
  std::vector<int> named(layers, 0);
  m.layers.assign(layers, false);
  for (const auto* list : {&attends, &mixes})
    for (const std::int64_t layer : *list) {
      if (layer > c.num_hidden_layers) continue;
      ++named[static_cast<std::size_t>(layer - 1)];
      m.layers[static_cast<std::size_t>(layer - 1)] = list == &mixes;
    }
  for (const int times : named)
    if (times != 1)
      return reader.fail("linear_attn_config", "inconsistent",
                         "expected each layer from 1 on in one of full_attn_layers and kda_layers");
}

KimiLinearConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 163'840;
  d.hidden_size = 2304;
  d.intermediate_size = 9216;
  d.num_hidden_layers = 27;
  d.num_attention_heads = 32;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = reader.integer("model_max_length", 1'048'576);
  d.has_pad_token = true;
  KimiLinearConfig c{read_text_sizes(reader, d), {}};
  c.rotary_dim = -1;
  DeepseekConfig& l = c.latent;
  l.names = &kNames;
  l.hidden_size = c.hidden_size;
  l.num_attention_heads = c.num_attention_heads;
  l.attention_dropout = c.attention_dropout;
  l.kv_lora_rank = reader.integer("kv_lora_rank", 512);
  l.q_lora_rank = reader.optional_integer("q_lora_rank").value_or(0);
  l.qk_nope_head_dim = reader.integer("qk_nope_head_dim", 128);
  l.qk_rope_head_dim = reader.integer("qk_rope_head_dim", 64);
  l.v_head_dim = reader.integer("v_head_dim", 128);
  l.attention_bias = reader.boolean("attention_bias", false);
  if (c.num_key_value_heads != c.num_attention_heads)
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "keys are expanded to every head; expected num_attention_heads (" +
                          std::to_string(c.num_attention_heads) + ")");
  c.head_dim = l.qk_head_dim();
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 256,
                .num_experts_per_tok = reader.integer("num_experts_per_token", 8),
                .intermediate_size = 1024,
                .n_group = reader.integer("num_expert_group", 1),
                .norm_topk_prob = reader.boolean("moe_renormalize", true)});
  read_expert_groups(reader, c, "num_shared_experts", reader.integer("n_shared_experts", 1), 1);
  read_mlp_layer_types(reader, c);
  read_linear_attention(reader, c);
  // What the class of 5.23 leaves out, or always does.
  reader.ignore({"mla_use_nope", "moe_layer_freq", "moe_router_activation_func", "num_nextn_predict_layers",
                 "use_grouped_topk", "qk_head_dim", "pretraining_tp"});
  return c;
}

/// KimiLinearAttention: DeepSeek-V3's, of which nothing rotates.
struct KimiLinearAttention : DeepseekAttention {
  using DeepseekAttention::DeepseekAttention;

  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    const DeepseekConfig& c = *config;
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    const Tensor query_states = project_queries(hidden_states);
    const Tensor compressed_kv = kv_a_proj_with_mqa(hidden_states);
    TensorList latents = split(compressed_kv, {c.kv_lora_rank, c.qk_rope_head_dim}, -1);
    Tensor kv_nope = kv_a_layernorm(latents[0]);
    kv_nope = view(kv_nope, {batch, 1, length, c.kv_lora_rank});
    Tensor k_rot = view(latents[1], {batch, 1, length, c.qk_rope_head_dim});
    if (KvCache* const cache = hidden_states.context().past_key_values) {  // of what is still compressed
      KvCache::States states = cache->update(layer_idx, kv_nope, k_rot);
      kv_nope = std::move(states.keys);
      k_rot = std::move(states.values);
    }
    const AttentionInputs inputs = expand_kv(kv_nope, k_rot);
    AttentionOutputs attention = attention_forward(call, query_states, inputs.key, inputs.value, attention_mask);
    attention.output = reshape(attention.output, {batch, length, c.num_attention_heads * c.v_head_dim});
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }
};

/// KimiLinearMoE: its router's bias is not among what the class keeps in float32.
MoeWithShared make_moe(const Builder& builder, const TextConfig& c) {
  MoeWithShared moe;
  moe.module = builder.module;
  moe.experts = make_experts(builder, kNames.experts, c);
  const Builder gate_at = builder.child("gate", kNames.router);
  Router gate(gate_at, c, best_of_groups);
  gate.e_score_correction_bias = gate_at.buffer({c.experts.num_experts}, builder.dtype);
  moe.gate = std::move(gate);
  moe.shared_experts = make_shared(builder.child("shared_experts", c.names->mlp), c);
  return moe;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const std::shared_ptr<const KimiLinearConfig>& config,
                                         const ModelOptions& options, std::size_t index) {
  const KimiLinearConfig& c = *config;
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  if (c.mixer.is_in(index))
    layer->self_attn = [its = KimiDeltaAttention(builder.child("self_attn", "KimiLinearDeltaAttention"), c)](
                           const Tensor& hidden_states, const PositionEmbeddings&, const Tensor& mask) {
      return its(hidden_states, mask);
    };
  else
    layer->self_attn = [config,
                        its = KimiLinearAttention(builder.child("self_attn", kNames.attention), c.latent, options)](
                           const Tensor& hidden_states, const PositionEmbeddings&, const Tensor& mask) {
      return its(hidden_states, mask);
    };
  if (c.experts.are_in(index))
    layer->mlp = make_moe(builder.child("mlp", kNames.moe), c);
  else
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

DecoderParts parts(const KimiLinearConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config = std::make_shared<const KimiLinearConfig>(config), options](
                    const Builder& layer, std::size_t index) { return make_layer(layer, config, options, index); };
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<KimiLinearConfig>();
  ModelTraits t = text_traits(c);
  t.has_no_peft_targets();
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp});
  refuse_generate_options(t);
  t.refuse(Feature::flash_attention_2, "not-modelled", "this is not supported yet with " + t.class_name);
  refuse_flash_of_other_widths(t, c.latent);
  return t;
}

}  // namespace

namespace family {
extern const Family kimi_linear = text_family_of<KimiLinearConfig, read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
