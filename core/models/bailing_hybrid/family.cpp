#include "models/deepseek/family.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/deepseek/deepseek.h"
#include "models/kimi_linear/delta_attention.h"
#include "models/kit/kept_in_float32.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "ops/ops.h"
#include "ops/xielu.h"

/// transformers 5.23, models/bailing_hybrid/modeling_bailing_hybrid.py: Kimi Delta Attention in most layers,
/// DeepSeek-V3's attention with gated heads in the others, and DeepSeek-V3's experts.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{
    {"BailingHybridForCausalLM", "BailingHybridModel", "BailingHybridDecoderLayer", "BailingHybridAttention",
     "BailingHybridMLP", "BailingHybridRMSNorm", "BailingHybridRotaryEmbedding"},
    "BailingHybridMoE",
    "BailingHybridExperts",
    "BailingHybridTopkRouter",
    {.is_v3 = true, .gates_heads = true}};
constexpr ModelClass kClasses[] = {{"bailing_hybrid", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct BailingHybridConfig : TextConfig {
  DeepseekConfig latent;      ///< of the layers with attention
  bool kda_safe_gate = true;  ///< the forget gate has a bound
  bool has_bos_token = false;
  bool operator==(const BailingHybridConfig&) const = default;
};

BailingHybridConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 157'184;
  d.hidden_size = 2560;
  d.intermediate_size = 6144;
  d.num_hidden_layers = 42;
  d.num_attention_heads = 32;
  d.num_key_value_heads = 32;
  d.max_position_embeddings = reader.integer("model_max_length", 262'144);
  d.has_pad_token = true;
  BailingHybridConfig c{read_text_sizes(reader, d, 128), {}};
  c.tie_word_embeddings = false;  // _tied_weights_keys is empty
  c.has_bos_token = reader.has("bos_token_id");
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::linear_attention | Kernels::causal_conv1d;
  // A config that was saved has the size of rotated keys in head_dim, and this one beside it.
  m.key_head_dim = m.value_head_dim = reader.integer("linear_head_dim", c.head_dim);
  m.num_key_heads = m.num_value_heads = reader.integer("linear_num_heads", c.num_attention_heads);
  m.conv_kernel = reader.integer("linear_conv_kernel_dim", reader.integer("short_conv_kernel_size", 4));
  read_mixer_layers(reader, c, "linear_attention", reader.integer("layer_group_size", 6));
  c.kda_safe_gate = reader.boolean("kda_safe_gate", true);
  DeepseekConfig& l = c.latent;
  l.names = &kNames;
  l.hidden_size = c.hidden_size;
  l.num_attention_heads = c.num_attention_heads;
  l.attention_dropout = c.attention_dropout;
  l.kv_lora_rank = reader.integer("kv_lora_rank", 512);
  l.q_lora_rank = 0;
  l.qk_nope_head_dim = reader.integer("qk_nope_head_dim", 128);
  l.qk_rope_head_dim = reader.integer("qk_rope_head_dim", 64);
  l.v_head_dim = reader.integer("v_head_dim", 128);
  l.attention_bias = reader.boolean("attention_bias", false);
  if (c.num_key_value_heads != c.num_attention_heads)
    reader.fail("num_key_value_heads", "inconsistent",
                "found " + std::to_string(c.num_key_value_heads) +
                    "; keys are expanded to every head: expected num_attention_heads (" +
                    std::to_string(c.num_attention_heads) + ")");
  if (l.qk_rope_head_dim % 2 != 0)
    reader.fail_found("qk_rope_head_dim", "inconsistent", "rotary embeddings need an even size");
  c.head_dim = l.qk_head_dim();
  c.rotary_dim = l.qk_rope_head_dim;
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 512,
                .num_experts_per_tok = reader.integer("num_experts_per_token", 8),
                .intermediate_size = 768,
                .n_group = reader.integer("num_expert_group", 8),
                .norm_topk_prob = reader.boolean("moe_renormalize", true)});
  read_expert_groups(reader, c, "num_shared_experts", reader.integer("n_shared_experts", 1), 2);
  read_mlp_layer_types(reader, c);
  // A bound's value, and heads for further tokens that the class leaves out.
  reader.ignore({"kda_lower_bound", "mtp_loss_scaling_factor", "num_mtp_layers", "num_nextn_predict_layers",
                 "pretraining_tp", "qk_head_dim"});
  return c;
}

struct BailingHybridForgetGate {
  BailingHybridForgetGate(const Builder& builder, const BailingHybridConfig& c)
      : a_log(kept_in_float32(builder).parameter("A_log", {c.mixer.num_value_heads})),
        dt_bias(kept_in_float32(builder).parameter("dt_bias", {c.mixer.value_size()})),
        f_proj(builder.child("f_proj", "Linear"), c.hidden_size, c.mixer.value_size(), false),
        heads(c.mixer.num_value_heads),
        head_dim(c.mixer.value_head_dim),
        safe_gate(c.kda_safe_gate),
        module(builder.module) {}

  Tensor operator()(const Tensor& given) const {
    ModuleCall call(given.context(), module);
    const Tensor hidden_states = call.argument(given);
    Tensor gate_input = f_proj(hidden_states);
    gate_input = to(gate_input, DType::float32);
    gate_input = view(gate_input, {given.size(0), given.size(1), heads, head_dim});
    gate_input = add(gate_input, view(dt_bias, {1, 1, heads, head_dim}));
    const Tensor decay_rate = view(exp(a_log), {1, 1, heads, 1});
    Tensor gate;
    if (safe_gate) {
      gate = mul(decay_rate, gate_input);
      gate = sigmoid(gate);
      gate = mul_scalar(gate);
    } else {
      const Tensor rate = neg(decay_rate);
      gate = softplus(gate_input);
      gate = mul(rate, gate);
    }
    return call.result(to(gate, hidden_states.dtype()));
  }

  Tensor a_log, dt_bias;
  Linear f_proj;
  std::int64_t heads, head_dim;
  bool safe_gate;
  ModuleId module;
};

struct BailingHybridDeltaAttention {
  BailingHybridDeltaAttention(const Builder& builder, const BailingHybridConfig& c)
      : projections(builder, c, true),
        forget_gate(builder.child("forget_gate", "BailingHybridForgetGate"), c),
        b_proj(builder.child("b_proj", "Linear"), c.hidden_size, projections.heads, false),
        o_norm(builder.child("o_norm", "BailingHybridRMSNormGated"), nullptr, {projections.head_dim}),
        o_proj(builder.child("o_proj", "Linear"), c.mixer.value_size(), c.hidden_size, false),
        g_proj(builder.child("g_proj", "Linear"), c.hidden_size, c.mixer.value_size(), false),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& given, const Tensor& attention_mask) const {
    ModuleCall call(given.context(), module);
    const Tensor hidden_states = apply_mask_to_padding_states(call.keyword(given), attention_mask);
    const auto [query, key, value, decodes] = projections(hidden_states, false);
    const Shape hidden_shape = query.sizes();
    const Tensor decay = forget_gate(hidden_states);
    Tensor beta = b_proj(hidden_states);
    beta = sigmoid(beta);
    DeltaRuleOutputs outputs = kimi_delta_attention({query, key, value, decay, beta}, projections.layer_idx, decodes);
    const Tensor output_gate = g_proj(hidden_states);
    Tensor& output = outputs.core_attn_out;
    output = sigmoid_gated_norm(o_norm, output, view(output_gate, hidden_shape));
    output = reshape(output, {hidden_shape[0], hidden_shape[1], hidden_shape[2] * hidden_shape[3]});
    return {call.result(o_proj(output)), {}};
  }

  ConvolvedProjections projections;
  BailingHybridForgetGate forget_gate;
  Linear b_proj;
  Norm o_norm;
  Linear o_proj, g_proj;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder,
                                         const std::shared_ptr<const BailingHybridConfig>& config,
                                         const ModelOptions& options, std::size_t index) {
  const BailingHybridConfig& c = *config;
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  if (c.mixer.is_in(index))
    layer->self_attn = [its = BailingHybridDeltaAttention(builder.child("self_attn", "BailingHybridDeltaAttention"),
                                                          c)](const Tensor& hidden_states, const PositionEmbeddings&,
                                                              const Tensor& mask) { return its(hidden_states, mask); };
  else
    layer->self_attn = [config,
                        its = DeepseekAttention(builder.child("self_attn", kNames.attention), c.latent, options)](
                           const Tensor& hidden_states, const PositionEmbeddings& positions, const Tensor& mask) {
      return its(hidden_states, positions, mask);
    };
  if (c.experts.are_in(index))
    layer->mlp = make_moe_with_shared(builder.child("mlp", kNames.moe), c, kNames.experts, kNames.router, false);
  else
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

DecoderParts parts(const BailingHybridConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config = std::make_shared<const BailingHybridConfig>(config), options](
                    const Builder& layer, std::size_t index) { return make_layer(layer, config, options, index); };
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<BailingHybridConfig>();
  ModelTraits t = text_traits(c);
  t.has_no_peft_targets();
  t.allow({Feature::quantization, Feature::fsdp});
  if (!c.has_bos_token)  // the class's own is none, and generate then has a tensor less
    t.refuse(Feature::inference, "not-modelled", "generation without bos_token_id is not supported yet: set it");
  refuse_generate_options(t);
  for (const Feature feature : {Feature::flash_attention_2, Feature::lengths, Feature::packing})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  refuse_flash_of_other_widths(t, c.latent);
  return t;
}

}  // namespace

namespace family {
extern const Family bailing_hybrid = text_family_of<BailingHybridConfig, read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
