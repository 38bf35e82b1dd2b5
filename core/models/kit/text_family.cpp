#include "models/kit/text_family.h"

#include <utility>

#include "models/llama/family.h"

namespace oometer {

ModelTraits text_traits(const TextConfig& config) {
  ModelTraits t = llama_traits(config);
  t.oldest_transformers = {5, 23, 0};
  for (const Feature feature : {Feature::liger, Feature::quantization, Feature::zero3, Feature::fsdp,
                                Feature::headinfer, Feature::quantized_cache})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ModelTraits traits_of_text_family(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  t.lora_targets = t.ia3_targets = t.ia3_feedforward = t.ln_tuning_targets = {};  // peft does not know it
  return t;
}

double largest_tensor_of_text_family(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of(config.as<TextConfig>(), data);
}

std::unique_ptr<Model> build_text_family(Context& context, const TextConfig& config, const DataConfig& data,
                                         const ModelOptions& options, DecoderParts parts) {
  parts.rotary_dim = config.rotary_dim;
  if (!config.rotates.empty())
    parts.kind = [config](std::size_t i) { return 2 * (config.window_of(i) != 0) + config.rotates_in(i); };
  if (config.softcaps_logits) parts.logits = softcap;
  return std::make_unique<CausalLM>(context, config, data, options, std::move(parts));
}

DecoderParts::MakeNorm final_norm(Norm::Forward forward, bool with_bias) {
  return [forward, with_bias](const Builder& builder, std::int64_t hidden_size) {
    return [norm = Norm(builder, forward, {hidden_size}, with_bias)](const Tensor& x) { return norm(x); };
  };
}

}  // namespace oometer
