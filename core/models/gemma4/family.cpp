#include "models/family.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "config/reader.h"
#include "models/gemma4/gemma4.h"
#include "models/gemma4_text/gemma4_text.h"
#include "models/kit/image_size.h"
#include "models/kit/recurrent.h"
#include "models/sizes.h"
#include "models/vision_language.h"
#include "peft/targets.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"gemma4", "Gemma4ForConditionalGeneration"},
                                   {"gemma4_unified", "Gemma4UnifiedForConditionalGeneration"}};
constexpr const char* kBlocks[] = {kGemma4Names.decoder_layer, "Gemma4VisionEncoderLayer", "Gemma4VisionPatchEmbedder",
                                   "Gemma4AudioLayer", kGemma4UnifiedNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return of.class_name == std::string_view(kClasses[1].class_name) ? read_gemma4_unified_config(reader)
                                                                   : read_gemma4_config(reader);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_gemma4(context, config.as<Gemma4Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Gemma4Config>();
  ModelTraits t = vision_language_traits(kClasses[c.is_unified].class_name, c.text, c.tie_word_embeddings);
  t.has_experts = c.text.experts.num_experts != 0;
  t.has_idle_parts = c.audio || c.audio_embed_dim;
  t.takes_images = c.vision || c.unified_vision;
  t.set_parts("vision_tower", "embed_vision", "language_model");
  if (c.is_unified) t.tower = t.projector = "";
  if (t.takes_images) t.image_keys = {"image_size"};
  t.convolutions = 0;
  t.oldest_transformers = {5, 23, 0};
  // Gemma4PreTrainedModel._no_split_modules
  if (c.is_unified)
    t.no_split_modules = {kGemma4UnifiedNames.decoder_layer};
  else
    t.no_split_modules = {kGemma4Names.decoder_layer, "Gemma4VisionEncoderLayer", "Gemma4VisionPatchEmbedder",
                          "Gemma4AudioLayer"};
  t.allow({Feature::quantization, Feature::fsdp, Feature::zero3, Feature::image_preferences, Feature::packing});
  refuse_generate_options(t);
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (std::max(c.text.head_dim, c.text.global_head_dim) > 256)
    t.refuse(Feature::flash_attention_2, "inconsistent", "flash-attn has heads of at most 256, this model wider ones");
  if (!c.is_unified) allow_gemma4_liger(t, c.text);
  if (c.is_unified)
    for (const Feature feature : {Feature::pretrain, Feature::finetune})
      t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Gemma4Config>();
  double largest = largest_tensor_of_gemma4_text(c.text, data);
  if (c.unified_vision)
    return std::max({largest, bytes_of({c.unified_vision->patch_elements(), c.unified_vision->mm_embed_dim}),
                     bytes_of({std::max<std::int64_t>(data.images(), 1), c.pixel_rows(), c.pixel_elements()}),
                     bytes_of({c.unified_vision->mm_posemb_size, 2, c.unified_vision->mm_embed_dim})});
  if (!c.vision) return largest;
  const Gemma4VisionConfig& v = *c.vision;
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1), patches = c.pixel_rows();
  return std::max({largest, bytes_of_layer(images, patches, v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({2, v.position_embedding_size, v.hidden_size}),
                   bytes_of({images, patches, std::max(v.patch_elements(), c.max_soft_tokens)}),
                   bytes_of({v.num_attention_heads * v.head_dim, v.hidden_size}),
                   bytes_of({images, c.max_soft_tokens, c.text.hidden_size, 3})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<Gemma4Config>();
  const auto size = read_image_size(reader, data, {672, 960});
  if (!size) return;
  const auto [height, width] = *size;
  const auto patches = gemma4_patches(height, width, c);
  if (!patches) {
    reader.fail_found("image_size", "inconsistent", "the processor would make an image without pixels of it");
    return;
  }
  data.image_height = height;
  data.image_width = width;
  data.grid_t = 1;
  data.grid_h = patches->first;
  data.grid_w = patches->second;
  data.tokens_per_image = data.patches() / c.patches_per_token();
}

/// Modules whose names are those of Linear layers, and which are none: their `linear` is.
constexpr const char* kClippable[] = {"vision_tower.encoder.layers.0.self_attn.q_proj",
                                      "vision_tower.encoder.layers.0.self_attn.k_proj",
                                      "vision_tower.encoder.layers.0.self_attn.v_proj",
                                      "vision_tower.encoder.layers.0.self_attn.o_proj",
                                      "vision_tower.encoder.layers.0.mlp.gate_proj",
                                      "vision_tower.encoder.layers.0.mlp.up_proj",
                                      "vision_tower.encoder.layers.0.mlp.down_proj",
                                      "audio_tower.layers.0.self_attn.q_proj",
                                      "audio_tower.layers.0.self_attn.k_proj",
                                      "audio_tower.layers.0.self_attn.v_proj",
                                      "audio_tower.layers.0.self_attn.post",
                                      "audio_tower.layers.0.feed_forward1.ffw_layer_1",
                                      "audio_tower.layers.0.feed_forward1.ffw_layer_2",
                                      "audio_tower.layers.0.lconv1d.linear_start",
                                      "audio_tower.layers.0.lconv1d.linear_end"};

// peft 0.21.2, tuners/lora/model.py, _create_new_module: "Target module ... is not supported".
void refuse_clippable(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
  const auto& c = config.as<Gemma4Config>();
  for (const std::string module : kClippable) {
    const std::string path = "model." + module;
    if (!(module[0] == 'v' ? c.vision.has_value() : c.audio.has_value())) continue;
    if (!is_targeted(lora.target_modules, path)) continue;
    return reader.fail_found(
        "target_modules", "inconsistent",
        "peft finds " + path +
            " among these, a Gemma4ClippableLinear, which it cannot adapt; "
            "expected names of the language model's, as \".*language_model\\..*\\.(q_proj|v_proj)\", or "
            "\"all-linear\"");
  }
}

}  // namespace

namespace family {
extern const Family gemma4{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .read_images = read_images,
                           .convert_targets = refuse_clippable};
}  // namespace family

}  // namespace oometer
