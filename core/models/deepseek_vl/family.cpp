#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/deepseek_vl/deepseek_vl.h"
#include "models/registry.h"
#include "models/siglip/config.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"deepseek_vl", "DeepseekVLForConditionalGeneration"}};
constexpr const char* kBlocks[] = {kSiglipVision.encoder_layer};

// class DeepseekVLConfig (models/deepseek_vl/configuration_deepseek_vl.py)
FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  VisionLanguageConfig c;
  ConfigReader vision = reader.object("vision_config");
  vision.choice<int>("model_type", 0, {{"siglip_vision_model", 0}});
  c.vision = read_siglip_vision_config(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.text = read_language_config(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"image_token_id"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_deepseek_vl(context, config.as<VisionLanguageConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<VisionLanguageConfig>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c);
  t.set_parts("vision_model", "aligner", "language_model");
  t.cuts_images = true;  // the processor makes a square of any
  t.image_keys.push_back("image_sizes");
  t.default_sequence_length = std::max(t.default_sequence_length, c.vision.num_patches());
  t.oldest_transformers = {5, 23, 0};
  t.allow({Feature::quantization});
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (c.vision.has_head)
    for (const Feature sharding : {Feature::zero3, Feature::fsdp})
      t.refuse(sharding, "not-modelled",
               "SigLIP's head on shards is not supported yet; expected another strategy, or a vision_config with "
               "\"vision_use_head\": false, as the model needs no head");
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<VisionLanguageConfig>().vision.num_patches()};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<VisionLanguageConfig>();
  return std::max({largest_tensor_of(c, data), bytes_of({c.text.hidden_size, c.vision.hidden_size}),
                   bytes_of({data.images(), c.vision.num_patches(), c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family deepseek_vl{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest_tensor,
                                .count_image = count_image};
}  // namespace family

}  // namespace oometer
