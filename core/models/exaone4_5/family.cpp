#include "models/family.h"

#include <algorithm>

#include "models/exaone4_5/exaone4_5.h"
#include "models/kit/text_family.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"exaone4_5", kExaone45ClassNames.text.causal_lm}};
constexpr const char* kBlocks[] = {kExaone45ClassNames.block};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_exaone4_5_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_exaone4_5(context, config.as<Exaone45Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Exaone45Config>();
  ModelTraits t = vision_language_traits(kExaone45ClassNames.text.causal_lm, c.text, c.tie_word_embeddings);
  t.set_parts("visual", "visual.merger", "language_model");
  t.pretrain = {{}, {t.projector}, {}};  // the merger is a part of the tower
  t.finetune = {{"visual.patch_embed", "visual.blocks"}, {}, {}};
  t.image_keys = {"image_size", "image_sizes", "grid_thw", "min_pixels", "max_pixels"};
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(kBlocks[0]);
  t.allow({Feature::quantization});
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Exaone45Config>();
  const QwenVisionConfig& v = c.tower.vision;
  const std::int64_t frames = checked_product(data.images(), data.grid_t), merged = v.hidden_size * v.merge_unit();
  return std::max(
      {largest_tensor_of_text_family(c.text, data),
       bytes_of_layer(frames, data.grid_h * data.grid_w, 3 * v.hidden_size, v.intermediate_size, v.num_heads),
       bytes_of({frames, data.grid_h * data.grid_w, v.patch_elements()}), bytes_of({v.hidden_size, v.patch_elements()}),
       bytes_of({merged, std::max(merged, v.out_hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const QwenVisionConfig& v = config.as<Exaone45Config>().tower.vision;
  // Qwen2VLImageProcessor's own limits
  read_grid(reader, {v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 56 * 56, 28 * 28 * 1280}, data);
  if (data.grid_t > 0) check_sequences(reader, checked_product(data.images(), windows_with_padding(v.windows(), data)));
}

}  // namespace

namespace family {
extern const Family exaone4_5{.classes = kClasses,
                              .blocks = kBlocks,
                              .read = read,
                              .build = build,
                              .traits = traits,
                              .largest_tensor = largest_tensor,
                              .read_images = read_images};
}  // namespace family

}  // namespace oometer
