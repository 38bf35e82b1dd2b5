#include <algorithm>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"

/// transformers 5.23, models/mellum/modeling_mellum.py: Qwen3-MoE's attention and experts, in layers of which some may
/// slide, with angles of their own.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MellumForCausalLM", "MellumModel",   "MellumDecoderLayer",   "MellumAttention",
                                 "MellumMLP",         "MellumRMSNorm", "MellumRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"mellum", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

/// rope_parameters of a type of layers: what of it decides memory. Returns whether the angles' frequencies are float32
/// whatever the model is.
bool read_rope(ConfigReader& reader, const char* type) {
  if (!reader.is_object("rope_parameters")) return false;
  ConfigReader all = reader.object("rope_parameters");
  if (!all.is_object(type)) return false;
  ConfigReader its = all.object(type);
  if (its.number("partial_rotary_factor", 1.0, 0, 1) != 1.0)
    its.fail_found("partial_rotary_factor", "inconsistent", "the class rotates whole heads: expected 1.0");
  return its.text("rope_type", "default") == "yarn";
}

struct MellumConfig : TextConfig {
  bool has_tokens = false;  ///< bos_token_id and eos_token_id

  bool operator==(const MellumConfig&) const = default;
};

MellumConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 98'304;
  d.hidden_size = 2304;
  d.intermediate_size = 7168;
  d.num_hidden_layers = 28;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 131'072;
  MellumConfig c{read_text_sizes(reader, d, 128)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  c.has_tokens = reader.has("bos_token_id") && reader.has("eos_token_id");
  read_mixed_layers(reader, c, 1, 1024);
  const auto sliding = std::count_if(c.layer_windows.begin(), c.layer_windows.end(), [](auto w) { return w != 0; });
  if (sliding == 0) c.sliding_window = 0;                       // masks and angles are made of the types that there are
  if (sliding == c.num_hidden_layers) c.layer_windows.clear();  // all of one window
  const bool full_is_yarn = read_rope(reader, "full_attention"),
             sliding_is_yarn = read_rope(reader, "sliding_attention");
  c.float32_frequencies = sliding == c.num_hidden_layers ? sliding_is_yarn : full_is_yarn;
  if (c.has_both_types() && sliding_is_yarn)
    reader.fail("rope_parameters", "not-modelled",
                "found \"yarn\" of layers that slide beside layers that do not, which is not supported yet");
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 64, .num_experts_per_tok = 8, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 896);
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", true);
  read_mlp_layer_types(reader, c);
  // Layers that predict more tokens: the class leaves them out.
  reader.ignore({"num_mtp_layers", "num_nextn_predict_layers", "mtp_layer_types", "mtp_mlp_layer_types"});
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  its.norms_at = HeadNorms::projected;
  its.norm = rms_norm;
  its.norm_type = kNames.rms_norm;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) -> TextLayer::MLP {
    if (!c.experts.are_in(index)) return LlamaMLP(layer.child("mlp", kNames.mlp), c);
    const Builder at = layer.child("mlp", "MellumSparseMoeBlock");
    SparseMoeBlock block(at);
    block.experts = make_experts(at, "MellumExperts", c);
    block.gate = Router(at.child("gate", "MellumTopKRouter"), c, best_probabilities);
    return block;
  });
}

DecoderParts parts(const MellumConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.rotary_by_type = parts.masks_by_type = config.has_both_types();
  parts.float32_frequencies = config.float32_frequencies;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  if (!config.as<MellumConfig>().has_tokens)  // the class's own are none, and generate then has tensors less
    t.refuse(Feature::inference, "not-modelled",
             "generation without bos_token_id and eos_token_id is not supported yet: set them");
  return t;
}

}  // namespace

namespace family {
extern const Family mellum = [] {
  Family its = text_family_of<MellumConfig, read, balanced<parts, MellumConfig>>(kClasses, kBlocks, traits);
  its.convert_targets = convert_mixture_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
