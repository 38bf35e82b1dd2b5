#include "models/blip_2/family.h"

#include <algorithm>

#include "models/blip_2/blip_2.h"
#include "models/llama/family.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{kBlip2.model_type, kBlip2.conditional_generation}};
constexpr const char* kBlocks[] = {kBlip2.vision.encoder_layer, kBlip2.qformer->layer};

ModelTraits traits_of_text(const Blip2Config& c) {
  if (c.decoder())
    return vision_language_traits(c.family->conditional_generation, *c.decoder(), c.decoder()->tie_word_embeddings);
  T5Config text = *c.encoder_decoder();
  text.class_name = c.family->conditional_generation;
  ModelTraits t = t5_traits(text);
  t.takes_images = true;
  t.convolutions = 1;
  return t;
}

}  // namespace

std::unique_ptr<Model> build_blip2_family(Context& context, const FamilyConfig& config, const DataConfig& data,
                                          const ModelOptions& options) {
  return build_blip2(context, config.as<Blip2Config>(), data, options);
}

ModelTraits traits_of_blip2_family(const FamilyConfig& config) {
  const auto& c = config.as<Blip2Config>();
  ModelTraits t = traits_of_text(c);
  t.set_parts("vision_model", "", "language_model");
  t.image_keys = {"image_size"};
  t.image_size = c.vision.image_size;
  t.cuts_images = true;  // the processor makes a square of any
  t.min_images = t.max_images = 1;
  t.images_why = "the class takes one image a sample";
  t.default_sequence_length = c.num_query_tokens + 64;
  t.max_sequence_length = c.decoder() ? c.decoder()->max_position_embeddings : t.max_sequence_length;
  if (c.reads_text())
    t.max_sequence_length = std::min(t.max_sequence_length, c.num_query_tokens + c.qformer.max_position_embeddings);
  t.default_sequence_length = std::min(t.default_sequence_length, t.max_sequence_length);
  t.oldest_transformers = {5, 23, 0};
  t.has_idle_parts = c.qformer.has_text_layers && !c.reads_text();
  t.generates = false;
  t.has_no_peft_targets();
  if (c.family == &kBlip2) {  // peft 0.21, utils/constants.py
    t.lora_targets = {"q", "v", "q_proj", "v_proj"};
    t.ln_tuning_targets = {"layernorm", "LayerNorm", "final_layer_norm", "self_attn_layer_norm"};
  }
  for (const Feature feature :
       {Feature::inference, Feature::generate_options, Feature::headinfer, Feature::quantized_cache,
        Feature::turn_images, Feature::chunked_cross_entropy, Feature::pretrain, Feature::finetune, Feature::lengths,
        Feature::packing, Feature::quantization, Feature::zero3, Feature::fsdp, Feature::image_preferences})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (c.decoder()) t.allow({Feature::fsdp, Feature::lengths});
  if (std::holds_alternative<LlamaConfig>(c.text)) t.allow({Feature::quantization});
  if (c.family == &kBlip2)
    t.refuse(Feature::flash_attention_2, "inconsistent",
             "the Q-Former of " + t.class_name + " has no flash attention: expected sdpa or eager");
  else
    t.refuse(Feature::flash_attention_2, "not-modelled",
             "flash attention is not supported yet with " + t.class_name + ": expected sdpa or eager");
  return t;
}

ImageCount count_blip2_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<Blip2Config>().num_query_tokens};
}

double largest_tensor_of_blip2(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Blip2Config>();
  const ClipVisionConfig& v = c.vision;
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1), tokens = v.num_positions();
  const double of_text =
      c.decoder() ? largest_tensor_of(*c.decoder(), data) : largest_tensor_of_t5(*c.encoder_decoder(), data);
  const std::int64_t seen = c.reads_text() ? std::max(data.sequence_length, c.num_query_tokens) : c.num_query_tokens;
  return std::max({of_text, bytes_of({c.qformer.hidden_size, c.text_hidden_size()}),
                   bytes_of_layer(images, tokens, v.hidden_size, std::max(v.intermediate_size, 3 * v.hidden_size),
                                  v.num_attention_heads),
                   bytes_of({images, v.num_channels, v.image_size, v.image_size}),
                   bytes_of({v.num_channels * v.patch_size * v.patch_size, v.hidden_size}),
                   largest_tensor_of_qformer(c.qformer, images, seen, tokens)});
}

namespace family {
extern const Family blip_2 = blip2_family<kBlip2>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
