#include "models/family.h"

#include <algorithm>

#include "models/internvl/internvl.h"
#include "models/llama/family.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr const InternVLFamily* kNamed[] = {&kInternVL, &kQianfanOcr};  ///< as kClasses
constexpr ModelClass kClasses[] = {{kInternVL.model_type, kInternVL.class_name},
                                   {kQianfanOcr.model_type, kQianfanOcr.class_name}};
constexpr const char* kBlocks[] = {kInternVL.vision_layer, kQianfanOcr.vision_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_internvl_config(reader, *kNamed[&of - kClasses]);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_internvl(context, config.as<InternVLConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<InternVLConfig>();
  ModelTraits t = vision_language_traits(c.vision.family->class_name, c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes", "tiles"};
  t.image_size = c.vision.image_size;
  t.cuts_images = t.chooses_tiles = true;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(c.vision.family->vision_layer);
  t.casts_by_first_parameter = true;
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp, Feature::image_preferences, Feature::packing});
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (c.vision.family->is_qianfan) return t;
  t.allow({Feature::liger});
  t.liger.usual.layer_norm = true;
  t.liger.lacks.layer_norm = false;
  t.liger.note =
      "Liger's rope and swiglu are given to apply_liger_kernel_to_internvl itself: of a Trainer's liger_kernel_config "
      "they do not reach an InternVL model";
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<InternVLConfig>();
  const InternVisionConfig& v = c.vision;
  const std::int64_t tiles = std::max<std::int64_t>(data.all_tiles(), 1), wide = v.hidden_size * c.shuffle * c.shuffle;
  return std::max({largest_tensor_of(c.text, data),
                   bytes_of_layer(tiles, v.num_positions(), v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({tiles, v.num_channels, v.image_size, v.image_size}),
                   bytes_of({tiles, c.tokens_per_tile(), std::max(c.text.hidden_size, wide)}),
                   bytes_of({std::max(wide, c.text.hidden_size), c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family internvl{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .count_image = count_tiles<InternVLConfig>};
}  // namespace family

}  // namespace oometer
