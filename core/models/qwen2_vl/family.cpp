#include "models/family.h"

#include <algorithm>

#include "models/llama/family.h"
#include "models/qwen2_vl/qwen2_vl.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"qwen2_5_vl", "Qwen2_5_VLForConditionalGeneration"},
                                   {"qwen2_vl", "Qwen2VLForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"Qwen2VLDecoderLayer", "Qwen2VLVisionBlock", "Qwen2_5_VLDecoderLayer",
                                   "Qwen2_5_VLVisionBlock"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_qwen_vl_config(reader, &of == &kClasses[0] ? kQwen25VLClassNames : kQwen2VLClassNames);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_qwen_vl(context, config.as<QwenVLConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<QwenVLConfig>();
  ModelTraits t = vision_language_traits(c.names->text.causal_lm, c.text, c.tie_word_embeddings);
  t.set_parts("visual", "visual.merger", "language_model");
  t.pretrain = {{}, {t.projector}, {}};  // the merger is a part of the tower
  t.finetune = {{"visual.patch_embed", "visual.blocks"}, {}, {}};
  t.image_keys = {"image_size", "image_sizes", "grid_thw", "frames", "video", "min_pixels", "max_pixels"};
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::quantization, Feature::image_preferences, Feature::packing});
  t.no_split_modules.emplace_back(c.names->block);
  t.stop_at_liger(t.kNoLigerOutputs);
  // get_rope_index reads a grid for each image of the whole conversation, get_image_features those of new images,
  // from one image_grid_thw (transformers 5.23, modeling_qwen2_5_vl.py).
  t.refuse(Feature::turn_images, "inconsistent",
           "this class's generate() takes one image_grid_thw for the positions of all images and the features of the "
           "new ones: with a cache it cannot take images in a later turn; expected 0");
  t.refuse(Feature::headinfer, "inconsistent",
           "HeadInfer is for attention of Llama's kind, which " + t.class_name + " has not; expected another cache");
  t.refuse(Feature::quantized_cache, "not-modelled",
           "a quantised cache of " + t.class_name + " is not supported yet; expected another cache");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<QwenVLConfig>();
  const QwenVisionConfig& v = c.vision;
  const std::int64_t frames = checked_product(data.images(), data.grid_t), merged = v.hidden_size * v.merge_unit();
  return std::max(
      {largest_tensor_of(c.text, data),
       bytes_of_layer(frames, data.grid_h * data.grid_w, 3 * v.hidden_size, v.intermediate_size, v.num_heads),
       bytes_of({frames, data.grid_h * data.grid_w, v.patch_elements()}), bytes_of({v.hidden_size, v.patch_elements()}),
       bytes_of({merged, std::max(merged, v.out_hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  read_grid(reader, config.as<QwenVLConfig>(), data);
}

}  // namespace

namespace family {
extern const Family qwen2_vl{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .read_images = read_images};
}  // namespace family

}  // namespace oometer
