#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/kit/grids.h"
#include "models/kit/text_family.h"
#include "models/paddleocr_vl/paddleocr_vl.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"paddleocr_vl", "PaddleOCRVLForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"PaddleOCRDecoderLayer", "PaddleOCRVisionEncoderLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_paddleocr_vl_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_paddleocr_vl(context, config.as<PaddleOcrVlConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<PaddleOcrVlConfig>();
  ModelTraits t = vision_language_traits(c.text.names->causal_lm, c.text, c.tie_word_embeddings);
  t.set_parts("visual", "projector", "language_model");
  t.image_keys = {"image_size", "image_sizes", "grid_thw", "min_pixels", "max_pixels"};
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::quantization, Feature::fsdp, Feature::image_preferences, Feature::packing});
  t.refuse(Feature::zero3, "not-modelled",
           "a projector that runs for each image on shards is not supported yet: expected another strategy");
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<PaddleOcrVlConfig>();
  const ClipVisionConfig& v = c.vision;
  const std::int64_t images = data.images(), patches = data.grid_h * data.grid_w, merged = c.merged_size(),
                     pixels = v.num_channels * v.patch_size * v.patch_size;
  constexpr std::int64_t kTaps = 4;
  return std::max({largest_tensor_of_text_family(c.text, data),
                   bytes_of_layer(images, patches, v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({images, patches, std::max(pixels, kTaps * v.hidden_size)}),
                   bytes_of({c.side(), c.side(), v.hidden_size}), bytes_of({v.hidden_size, pixels}),
                   bytes_of({merged, std::max(merged, c.text.hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<PaddleOcrVlConfig>();
  // PaddleOCRVLImageProcessor's own size, of single images
  GridRule rule{c.vision.patch_size, c.spatial_merge_size, 1, 384 * 384, 1536 * 1536, true};
  rule.grows_sides = true;
  read_grid(reader, rule, data);
}

}  // namespace

namespace family {
extern const Family paddleocr_vl{.classes = kClasses,
                                 .blocks = kBlocks,
                                 .read = read,
                                 .build = build,
                                 .traits = traits,
                                 .largest_tensor = largest_tensor,
                                 .read_images = read_images};
}  // namespace family

}  // namespace oometer
