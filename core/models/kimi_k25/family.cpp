#include "models/family.h"

#include <algorithm>
#include <vector>

#include "config/reader.h"
#include "models/deepseek/family.h"
#include "models/kimi_k25/kimi_k25.h"
#include "models/kit/grids.h"
#include "models/kit/image_size.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"kimi_k25", kKimiK25}};
constexpr const char* kBlocks[] = {kDeepseekV3.decoder_layer, kKimiK25VisionLayer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_kimi_k25_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_kimi_k25(context, config.as<KimiK25Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<KimiK25Config>();
  ModelTraits t = deepseek_traits(c.text);
  t.class_name = kKimiK25;
  t.takes_images = true;
  t.ties_embeddings = c.tie_word_embeddings;
  t.convolutions = 1;
  t.set_parts("vision_tower", "mm_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.allow({Feature::image_preferences, Feature::packing});
  t.no_split_modules = {kKimiK25VisionLayer, kDeepseekV3.decoder_layer};
  t.has_no_liger();
  for (const Feature feature :
       {Feature::quantization, Feature::headinfer, Feature::quantized_cache, Feature::turn_images, Feature::mtla})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<KimiK25Config>();
  const KimiK25VisionConfig& v = c.vision;
  const std::int64_t images = data.images(), patches = data.patches(), merged = c.merged_size();
  return std::max(
      {largest_tensor_of_deepseek(c.text, data),
       bytes_of_layer(images, patches, v.hidden_size, v.intermediate_size, v.num_attention_heads),
       bytes_of({images, patches, std::max({3 * v.patch_size * v.patch_size, v.hidden_size, std::int64_t{64}})}),
       bytes_of({v.pos_emb_side, v.pos_emb_side, v.hidden_size}),
       bytes_of({merged, std::max(merged, c.text.hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const KimiK25VisionConfig& v = config.as<KimiK25Config>().vision;
  const auto size = read_image_size(reader, data, {672, 448});
  if (!size) return;
  const auto [height, width] = *size;
  const auto [rows, columns] = kimi_k25_patches(height, width, v);
  data.image_height = height;
  data.image_width = width;
  data.grid_t = 1;
  data.grid_h = rows;
  data.grid_w = columns;
  data.tokens_per_image = data.patches() / v.merge_unit();
  check_sequences(reader, data.images());
}

}  // namespace

namespace family {
extern const Family kimi_k25{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .read_images = read_images};
}  // namespace family

}  // namespace oometer
