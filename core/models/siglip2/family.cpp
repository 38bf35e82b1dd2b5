#include "models/family.h"

#include <algorithm>
#include <tuple>

#include "config/reader.h"
#include "models/clip/family.h"
#include "models/kit/image_size.h"
#include "models/siglip/pair.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {
    {"siglip2", "Siglip2Model"}, {"siglip2", kSiglip2Vision.model}, {"siglip2_vision_model", kSiglip2Vision.model}};
constexpr const char* kBlocks[] = {"Siglip2TextEmbeddings", "Siglip2MultiheadAttentionPoolingHead"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  if (&of != &kClasses[2]) return read_siglip_config(reader, &of == &kClasses[0], true);
  SiglipConfig c;
  c.has_text = false;
  c.vision = read_siglip2_vision_config(reader, c.num_patches);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_siglip(context, config.as<SiglipConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<SiglipConfig>();
  ModelTraits t = clip_vision_traits(c.vision);
  t.class_name = c.has_text ? "Siglip2Model" : c.vision.family->model;
  t.image_size = t.convolutions = 0;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {kBlocks[0], c.vision.family->embeddings, c.vision.family->encoder_layer, kBlocks[1]};
  t.refuse(Feature::zero3, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::flash_attention_2, "inconsistent", "transformers has no flash attention for SigLIP 2: use sdpa");
  if (!c.vision.has_head) t.losses = {"last_hidden_state"};
  if (!c.has_text) return t;
  pair_with_texts(t, c.text);
  t.images_why = "the loss pairs texts and images";
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<SiglipConfig>();
  const ClipVisionConfig& v = c.vision;
  const std::int64_t batch = data.micro_batch_size, images = std::max<std::int64_t>(data.images(), 1);
  const double of_tower =
      std::max({bytes_of_layer(images, c.num_patches, v.hidden_size, v.intermediate_size, v.num_attention_heads),
                bytes_of({images, c.num_patches, v.num_channels, v.patch_size, v.patch_size}),
                bytes_of({c.num_patches, v.hidden_size}),
                bytes_of({v.hidden_size, v.num_channels, v.patch_size, v.patch_size})});
  if (!c.has_text) return of_tower;
  return std::max({of_tower, largest_tensor_of(c.text, data), bytes_of({batch, batch}),
                   bytes_of({c.projection_size, std::max(batch, c.text.hidden_size)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto size = read_image_size(reader, data, {224, 224});
  if (!size) return;
  std::tie(data.image_height, data.image_width) = *size;
  std::tie(data.grid_h, data.grid_w) = config.as<SiglipConfig>().cut(data.image_height, data.image_width);
}

}  // namespace

namespace family {
extern const Family siglip2{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .read_images = read_images};
}  // namespace family

}  // namespace oometer
