#include "models/gemma2/gemma2.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/vaultgemma/modeling_vaultgemma.py: Gemma 2 without norms behind attention and MLP.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"VaultGemmaForCausalLM",    "VaultGemmaModel", "VaultGemmaDecoderLayer",
                                 "VaultGemmaAttention",      "VaultGemmaMLP",   "VaultGemmaRMSNorm",
                                 "VaultGemmaRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"vaultgemma", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig c = read_gemma2_config(reader);
  c.names = &kNames;
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm_one_plus, {c.hidden_size});
  };
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("pre_feedforward_layernorm");
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.scales_embeddings = true;
  parts.norm = final_norm(rms_norm_one_plus);
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  t.refuse(Feature::sdpa, "inconsistent", "VaultGemma caps its attention weights, which SDPA cannot: expected eager");
  return t;
}

}  // namespace

namespace family {
extern const Family vaultgemma = text_family<read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
