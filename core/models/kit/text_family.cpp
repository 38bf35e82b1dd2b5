#include "models/kit/text_family.h"

#include <algorithm>
#include <utility>

#include "models/kit/recurrent.h"
#include "models/llama/family.h"
#include "models/sizes.h"

namespace oometer {

ModelTraits text_traits(const TextConfig& config) {
  ModelTraits t = llama_traits(config);
  t.oldest_transformers = {5, 23, 0};
  t.has_experts = config.experts.num_experts != 0;
  t.balances_experts = config.experts.balances;
  t.counts_experts = config.experts.are_counted;
  t.outputs_router_logits = config.experts.outputs_router_logits;
  t.kernels = config.mixer.kernels;
  t.has_no_liger();
  for (const Feature feature :
       {Feature::quantization, Feature::zero3, Feature::fsdp, Feature::headinfer, Feature::quantized_cache})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ModelTraits traits_of_text_family(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  t.has_no_peft_targets();
  return t;
}

void allow_compared(ModelTraits& traits, std::initializer_list<Feature> features) {
  if (!traits.classifies) traits.allow(features);
}

double largest_tensor_of_text_family(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_text(config.as<TextConfig>(), data);
}

double largest_tensor_of_text(const TextConfig& c, const DataConfig& data) {
  const ExpertsConfig& e = c.experts;
  const std::int64_t batch = data.micro_batch_size, length = data.sequence_length, inner = e.intermediate_size;
  const MixerConfig& m = c.mixer;
  return std::max({largest_tensor_of(c, data),
                   2 * bytes_of({batch, length, m.num_value_heads, std::max(m.chunk_size, m.value_head_dim)}),
                   bytes_of({batch, length, e.num_experts_per_tok, std::max(c.hidden_size, 2 * inner)}),
                   bytes_of({batch, length, std::max(e.num_experts, e.shared_intermediate_size)}),
                   bytes_of({e.num_experts, 2 * inner, c.hidden_size})});
}

void complete_parts(DecoderParts& parts, const TextConfig& config) {
  parts.rotary_dim = config.rotary_dim;
  const MixerConfig& mixer = config.mixer;
  if (!mixer.layers.empty()) parts.is_recurrent = [mixer](std::size_t i) { return mixer.is_in(i); };
  if (!parts.kind)
    parts.kind = [config](std::size_t i) {
      return 8 * config.mixer.is_in(i) + 4 * config.experts.are_in(i) + 2 * (config.window_of(i) != 0) +
             config.rotates_in(i);
    };
  if (config.softcaps_logits) parts.logits = softcap;
}

std::unique_ptr<Model> build_text_family(Context& context, const TextConfig& config, const DataConfig& data,
                                         const ModelOptions& options, DecoderParts parts) {
  complete_parts(parts, config);
  return make_language_model(context, config, data, options, std::move(parts));
}

DecoderParts::MakeNorm final_norm(Norm::Forward forward, bool with_bias) {
  return [forward, with_bias](const Builder& builder, std::int64_t hidden_size) {
    return [norm = Norm(builder, forward, {hidden_size}, with_bias)](const Tensor& x) { return norm(x); };
  };
}

}  // namespace oometer
