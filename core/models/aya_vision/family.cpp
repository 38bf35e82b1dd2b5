#include "models/family.h"

#include <algorithm>

#include "models/aya_vision/aya_vision.h"
#include "models/clip/family.h"
#include "models/kit/text_family.h"
#include "models/siglip/config.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr const AyaVisionClass* kNamed[] = {&kAyaVision, &kCohere2Vision};  ///< as kClasses
constexpr ModelClass kClasses[] = {{kAyaVision.model_type, kAyaVision.class_name},
                                   {kCohere2Vision.model_type, kCohere2Vision.class_name}};
constexpr const char* kBlocks[] = {"Cohere2DecoderLayer", kSiglipVision.encoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_aya_vision_config(reader, *kNamed[&of - kClasses]);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_aya_vision(context, config.as<AyaVisionConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<AyaVisionConfig>();
  ModelTraits t = vision_language_traits(c.of->class_name, c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes", "tiles"};
  t.image_size = c.vision.image_size;
  t.cuts_images = t.chooses_tiles = true;
  t.oldest_transformers = {5, 23, 0};
  if (c.of == &kAyaVision) t.allow({Feature::image_preferences});
  t.no_split_modules.emplace_back(kSiglipVision.encoder_layer);
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (c.of != &kAyaVision)
    t.refuse(Feature::flash_attention_2, "not-modelled", "this is not supported yet with " + t.class_name);
  for (const Feature feature : {Feature::zero3, Feature::fsdp}) {
    t.allow({feature});
    if (c.vision.has_head)
      t.refuse(feature, "not-modelled",
               "SigLIP's head on shards is not supported yet; expected another strategy, or a vision_config with "
               "\"vision_use_head\": false, as the model needs no head");
  }
  t.allow({Feature::quantization, Feature::packing});
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<AyaVisionConfig>();
  const std::int64_t tiles = std::max<std::int64_t>(data.all_tiles(), 1), between = c.alignment_intermediate_size;
  return std::max({largest_tensor_of_text_family(c.text, data), largest_tensor_of(c.vision, data),
                   bytes_of({tiles, c.vision.num_positions(), c.vision.hidden_size}),
                   bytes_of_layer(tiles, c.vision.num_positions(), c.vision.hidden_size, c.vision.intermediate_size,
                                  c.vision.num_attention_heads),
                   bytes_of({tiles, c.tokens_per_tile(), std::max({between, c.wide(), c.text.hidden_size})}),
                   bytes_of({between, std::max(c.wide(), c.text.hidden_size)})});
}

}  // namespace

namespace family {
extern const Family aya_vision{.classes = kClasses,
                               .blocks = kBlocks,
                               .read = read,
                               .build = build,
                               .traits = traits,
                               .largest_tensor = largest_tensor,
                               .count_image = count_tiles<AyaVisionConfig>};
}  // namespace family

}  // namespace oometer
