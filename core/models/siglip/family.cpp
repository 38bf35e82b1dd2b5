#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/clip/family.h"
#include "models/siglip/pair.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {
    {"siglip", "SiglipModel"}, {"siglip", kSiglipVision.model}, {"siglip_vision_model", kSiglipVision.model}};
constexpr const char* kBlocks[] = {"SiglipTextEmbeddings", "SiglipVisionEmbeddings", kSiglipVision.encoder_layer,
                                   "SiglipMultiheadAttentionPoolingHead"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  if (&of != &kClasses[2]) return read_siglip_config(reader, &of == &kClasses[0], false);
  SiglipConfig c;
  c.has_text = false;
  c.vision = read_siglip_vision_config(reader);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_siglip(context, config.as<SiglipConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<SiglipConfig>();
  ModelTraits t = clip_vision_traits(c.vision);
  t.class_name = c.has_text ? "SiglipModel" : c.vision.family->model;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {"SiglipTextEmbeddings", "SiglipVisionEmbeddings", kSiglipVision.encoder_layer,
                        "SiglipMultiheadAttentionPoolingHead"};
  for (const Feature feature : {Feature::zero3, Feature::fsdp})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (!c.has_text)
    t.refuse(Feature::flash_attention_2, "not-modelled", "this is not supported yet with " + t.class_name);
  if (!c.vision.has_head) t.losses = {"last_hidden_state"};
  if (!c.has_text) return t;
  t.allow({Feature::quantization});
  pair_with_texts(t, c.text);
  t.images_why = "the loss pairs texts and images";
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<SiglipConfig>();
  const std::int64_t batch = data.micro_batch_size;
  const double of_tower = largest_tensor_of(c.vision, data);
  if (!c.has_text) return of_tower;
  return std::max({of_tower, largest_tensor_of(c.text, data), bytes_of({batch, batch}),
                   bytes_of({c.projection_size, std::max(batch, c.text.hidden_size)})});
}

}  // namespace

namespace family {
extern const Family siglip{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
