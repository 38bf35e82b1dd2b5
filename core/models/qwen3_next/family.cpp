#include "config/reader.h"
#include "models/kit/gated_delta_net.h"
#include "models/kit/mixture.h"

/// transformers 5.23, models/qwen3_next/modeling_qwen3_next.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Qwen3NextForCausalLM",    "Qwen3NextModel", "Qwen3NextDecoderLayer",
                                 "Qwen3NextAttention",      "Qwen3NextMLP",   "Qwen3NextRMSNorm",
                                 "Qwen3NextRotaryEmbedding"};
constexpr GatedLayerNames kParts{"Qwen3NextGatedDeltaNet",  "Qwen3NextRMSNormGated", true,
                                 "Qwen3NextSparseMoeBlock", "Qwen3NextTopKRouter",   "Qwen3NextExperts"};
constexpr ModelClass kClasses[] = {{"qwen3_next", kNames.causal_lm},
                                   {"qwen3_next", "Qwen3NextForSequenceClassification"},
                                   {"qwen3_next", "Qwen3NextForTokenClassification"},
                                   {"qwen3_next", "Qwen3NextForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 151936;
  d.hidden_size = 2048;
  d.intermediate_size = 5632;
  d.num_hidden_layers = 48;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 2;
  d.max_position_embeddings = 32768;
  TextConfig c = read_gated_text(reader, d);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 512, .num_experts_per_tok = 10, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 512);
  c.experts.shared_intermediate_size = reader.integer("shared_expert_intermediate_size", 512);
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", true);
  read_sparse_layers(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  return make_gated_layer(builder, c, options, index, kParts);
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(norm_of(options.liger, rms_norm_one_plus, liger_norm_apart));
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = generating_traits_with<Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger>(config);
  t.liger.usual.rope = false;
  t.liger.experts = true;
  return t;
}

}  // namespace

namespace family {
extern const Family qwen3_next = [] {
  Family its = text_family<read, balanced<parts>>(kClasses, kBlocks, traits);
  its.convert_targets = convert_mixture_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
