#include "models/family.h"

#include <algorithm>
#include <vector>

#include "config/reader.h"
#include "models/kit/image_size.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_family.h"
#include "models/lfm2_vl/lfm2_vl.h"
#include "models/siglip/config.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"lfm2_vl", "Lfm2VlForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"Siglip2VisionEmbeddings", kSiglip2Vision.encoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_lfm2_vl_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_lfm2_vl(context, config.as<Lfm2VlConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Lfm2VlConfig>();
  ModelTraits t = vision_language_traits("Lfm2VlForConditionalGeneration", c.text, c.tie_word_embeddings);
  t.kernels = c.text.mixer.kernels;
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.convolutions = 0;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.insert(t.no_split_modules.end(), {kBlocks[0], kBlocks[1]});
  t.allow({Feature::image_preferences});
  refuse_generate_options(t);
  for (const Feature feature : {Feature::zero3, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::flash_attention_2, "inconsistent", "transformers has no flash attention for SigLIP 2: use sdpa");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Lfm2VlConfig>();
  const ClipVisionConfig& v = c.vision;
  const std::int64_t tiles = std::max<std::int64_t>(data.all_tiles(), 1), patches = c.patches_per_tile(),
                     merged = v.hidden_size * c.downsample_factor * c.downsample_factor;
  return std::max({largest_tensor_of_text_family(c.text, data),
                   bytes_of_layer(tiles, patches, v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({tiles, patches, v.num_channels, v.patch_size, v.patch_size}),
                   bytes_of({c.num_positions, v.hidden_size}), bytes_of({merged, c.projector_hidden_size}),
                   bytes_of({patches, std::max(c.projector_hidden_size, c.text.hidden_size)}),
                   bytes_of({c.projector_hidden_size, c.text.hidden_size}),
                   bytes_of({v.hidden_size, v.num_channels, v.patch_size, v.patch_size})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<Lfm2VlConfig>();
  const auto size = read_image_size(reader, data, {512, 512});
  if (!size) return;
  const auto [height, width] = *size;
  const Lfm2VlTiles tiles = c.cut(height, width);
  if (tiles.rows * tiles.columns > c.patches_per_tile()) {
    reader.fail_found("image_size", "inconsistent",
                      "expected an image that is less narrow: its patches do not fit what they are padded to");
    return;
  }
  data.image_height = height;
  data.image_width = width;
  data.tiles = tiles.tiles;
  data.grid_h = tiles.rows;
  data.grid_w = tiles.columns;
  data.tokens_per_image = c.tokens(tiles);
}

}  // namespace

namespace family {
extern const Family lfm2_vl{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .read_images = read_images};
}  // namespace family

}  // namespace oometer
