#include "models/family.h"

#include <algorithm>

#include "models/kit/grids.h"
#include "models/kit/recurrent.h"
#include "models/lfm3_vl/lfm3_vl.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"lfm3_vl", kLfm3Vl}};
constexpr const char* kBlocks[] = {kLfm3VlVisionLayer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_lfm3_vl_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_lfm3_vl(context, config.as<Lfm3VlConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Lfm3VlConfig>();
  ModelTraits t = vision_language_traits(kLfm3Vl, c.text, c.tie_word_embeddings);
  t.kernels = c.text.mixer.kernels;
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes", "grid_thw", "min_pixels", "max_pixels"};
  t.convolutions = std::count(c.vision.attends.begin(), c.vision.attends.end(), false);
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(kBlocks[0]);
  refuse_generate_options(t);
  t.allow({Feature::quantization, Feature::packing});
  for (const Feature feature :
       {Feature::zero3, Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Lfm3VlConfig>();
  const Lfm3VlVisionConfig& v = c.vision;
  const std::int64_t frames = checked_product(data.images(), data.grid_t), patches = data.grid_h * data.grid_w,
                     merged = c.merged_size();
  return std::max({largest_tensor_of_text(c.text, data),
                   bytes_of_layer(frames, patches, 3 * v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({frames, patches, v.patch_elements()}), bytes_of({v.hidden_size, v.patch_elements()}),
                   bytes_of({frames, patches / v.merge_unit(), std::max(c.projector_hidden_size, c.text.hidden_size)}),
                   bytes_of({c.projector_hidden_size, std::max(merged, c.text.hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const Lfm3VlVisionConfig& v = config.as<Lfm3VlConfig>().vision;
  // Qwen2VLImageProcessor's own limits
  read_grid(reader, {v.patch_size, v.spatial_merge_size, v.temporal_patch_size, 56 * 56, 28 * 28 * 1280}, data);
}

}  // namespace

namespace family {
extern const Family lfm3_vl{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .read_images = read_images};
}  // namespace family

}  // namespace oometer
