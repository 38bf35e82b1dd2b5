#include "config/reader.h"
#include "models/qwen3_5/qwen3_5.h"
#include "models/qwen3_vl/config.h"

namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Qwen3_5ForCausalLM",        "Qwen3_5TextModel", "Qwen3_5DecoderLayer",
                                 "Qwen3_5Attention",          "Qwen3_5MLP",       "Qwen3_5RMSNorm",
                                 "Qwen3_5TextRotaryEmbedding"};
constexpr GatedLayerNames kParts{"Qwen3_5GatedDeltaNet", "Qwen3_5RMSNormGated"};
constexpr ModelClass kClasses[] = {{"qwen3_5_text", kNames.causal_lm},
                                   {"qwen3_5_text", "Qwen3_5TextForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = generating_traits_with<Feature::quantization, Feature::fsdp, Feature::zero3, Feature::liger>(config);
  t.liger.usual.rope = false;
  t.liger.lacks.rope = true;
  return t;
}

}  // namespace

TextConfig read_qwen3_5_text(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 248320;
  d.intermediate_size = 12288;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 32768;
  reader.ignore({"mlp_only_layers"});  // Qwen3-Next's, which modular_qwen3_5.py takes out
  return read_gated_text(reader, d);
}

DecoderParts qwen3_5_text_parts(const TextConfig& config, const ModelOptions& options) {
  return parts_like_qwen3_5(config, options, kParts);
}

constexpr Qwen3VLClass kQwen35{"qwen3_5",
                               "Qwen3_5ForConditionalGeneration",
                               "Qwen3_5Model",
                               "Qwen3_5VisionModel",
                               "Qwen3_5VisionPatchEmbed",
                               "Qwen3_5VisionRotaryEmbedding",
                               "Qwen3_5VisionBlock",
                               "Qwen3_5VisionAttention",
                               "Qwen3_5VisionMLP",
                               "Qwen3_5VisionPatchMerger",
                               false,
                               read_qwen3_5_text,
                               qwen3_5_text_parts};

namespace family {
extern const Family qwen3_5 = text_family<read_qwen3_5_text, qwen3_5_text_parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
