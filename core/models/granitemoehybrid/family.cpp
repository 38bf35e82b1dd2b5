#include "config/reader.h"
#include "models/granitemoe/granitemoe.h"
#include "models/kit/mamba2.h"
#include "ops/ops.h"

/// transformers 5.23, models/granitemoehybrid/modeling_granitemoehybrid.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "GraniteMoeHybridForCausalLM",    "GraniteMoeHybridModel", "GraniteMoeHybridDecoderLayer",
    "GraniteMoeHybridAttention",      "GraniteMoeHybridMLP",   "GraniteMoeHybridRMSNorm",
    "GraniteMoeHybridRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"granitemoehybrid", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.num_key_value_heads = 0;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  if (reader.integer("num_local_experts", 8, non_negative) != 0)
    read_experts(reader, c, "num_local_experts", "num_experts",
                 {.num_experts = 8, .num_experts_per_tok = 2, .balances = true, .are_counted = false});
  else {
    reader.ignore({"num_experts_per_tok", "output_router_logits"});
    c.experts.are_counted = reader.number("router_aux_loss_coef", 0.001, -1e6, 1e6) == 0;
  }
  c.experts.intermediate_size = c.intermediate_size;
  c.experts.shared_intermediate_size = reader.integer("shared_intermediate_size", 1024);
  const std::string positions = reader.has("position_embedding_type") ? reader.text("position_embedding_type", "") : "";
  if (positions != "rope") c.rotary_dim = -2;  // layers get no position_ids
  read_mamba2_sizes(reader, c, {.key_head_dim = 256});
  // Where nothing is said, no layer has attention.
  std::vector<std::string> types = reader.texts("layer_types");
  if (types.empty()) types = reader.texts("layers_block_type");
  if (!types.empty() && types.size() != static_cast<std::size_t>(c.num_hidden_layers))
    reader.fail("layer_types", "inconsistent",
                "found " + std::to_string(types.size()) + " types for " + std::to_string(c.num_hidden_layers) +
                    " layers; expected num_hidden_layers of them");
  c.mixer.layers.assign(static_cast<std::size_t>(c.num_hidden_layers), true);
  for (std::size_t i = 0; i < c.mixer.layers.size() && i < types.size(); ++i) {
    c.mixer.layers[i] = types[i] == "linear_attention" || types[i] == "mamba";
    if (!c.mixer.layers[i] && types[i] != "full_attention" && types[i] != "attention")
      reader.fail("layer_types", "inconsistent",
                  "found \"" + types[i] + "\"; expected \"linear_attention\" or \"full_attention\"");
  }
  reader.ignore({"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier", "init_method",
                 "normalization_function", "rope_theta"});
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<GraniteMoeLayer>(builder.module);
  layer->input_layernorm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->post_attention_layernorm =
      Norm(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  if (c.experts.num_experts != 0)
    layer->block_sparse_moe = make_granite_moe(builder.child("block_sparse_moe", "GraniteMoeHybridMoE"), c,
                                               "GraniteMoeHybridTopKRouter", "GraniteMoeHybridExperts");
  layer->shared_mlp.emplace(builder.child("shared_mlp", kNames.mlp), c);
  if (c.mixer.is_in(index)) {
    layer->self_attn = [mamba = Mamba2Mixer(builder.child("mamba", "GraniteMoeHybridMambaLayer"), c, c.hidden_act,
                                            index, {.norm_type = "GraniteMoeHybridRMSNormGated"})](
                           const Tensor& x, const PositionEmbeddings&, const Tensor& mask) { return mamba(x, mask); };
  } else {
    AttentionParts its;
    if (c.rotary_dim < 0) its.rotate = nullptr;
    layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  }
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.scale = mul_scalar;
  parts.masks_know_positions = false;
  parts.logits = [](const Tensor& logits) { return div_scalar(logits); };
  parts.fused_states = div_scalar;
  return parts;
}

}  // namespace

namespace family {
extern const Family granitemoehybrid =
    text_family<read, balanced<parts>>(kClasses, kBlocks, traits_of_recurrent_family);
}  // namespace family

}  // namespace oometer
