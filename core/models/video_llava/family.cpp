#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/sizes.h"
#include "models/video_llava/video_llava.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"video_llava", "VideoLlavaForConditionalGeneration"}};
constexpr const char* kBlocks[] = {kClipVision.encoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework framework) {
  if (!reader.is_object("vision_config"))
    reader.fail("vision_config", "not-modelled", "the class's own one is not supported yet: expected an object");
  LlavaConfig c = read_llava_config(reader, framework);
  if (c.has_siglip())
    reader.fail("vision_config", "not-modelled",
                "another tower than CLIP's is not supported yet: expected \"clip_vision_model\"");
  reader.ignore({"video_token_index", "video_token_id", "video_seq_length"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_video_llava(context, config.as<LlavaConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<LlavaConfig>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c);
  t.set_parts("image_tower", "multi_modal_projector", "language_model");
  t.has_idle_parts = true;  // video_tower
  t.default_sequence_length = std::max(t.default_sequence_length, c.tokens_per_image());
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::quantization, Feature::packing});
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<LlavaConfig>().tokens_per_image()};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<LlavaConfig>();
  const std::int64_t widest = std::max(c.projector_input_size(), c.text.hidden_size);
  return std::max({largest_tensor_of(c, data), bytes_of({c.text.hidden_size, widest}),
                   bytes_of({data.images(), c.vision.num_positions(), widest})});
}

}  // namespace

namespace family {
extern const Family video_llava{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest_tensor,
                                .count_image = count_image};
}  // namespace family

}  // namespace oometer
