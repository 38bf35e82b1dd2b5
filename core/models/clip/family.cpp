#include "models/clip/family.h"

#include "models/clip/clip.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"clip", "CLIPModel"}};
constexpr const char* kBlocks[] = {"CLIPTextEmbeddings", kClipVision.encoder_layer, "CLIPVisionEmbeddings"};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_clip_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_clip(context, config.as<ClipConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<ClipConfig>();
  ModelTraits t = clip_vision_traits(c.vision);
  t.class_name = "CLIPModel";
  pair_with_texts(t, c.text);
  t.images_why = "the contrastive loss pairs texts and images";
  t.scalar_parameter = "logit_scale";
  t.refuse(Feature::fsdp, "inconsistent",
           "FSDP refuses a scalar parameter, as CLIPModel's logit_scale is; expected another strategy");
  t.allow({Feature::quantization});
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<ClipConfig>();
  const std::int64_t batch = data.micro_batch_size;
  return std::max({largest_tensor_of(c.vision, data), largest_tensor_of(c.text, data), bytes_of({batch, batch}),
                   bytes_of({c.projection_dim, std::max(batch, c.text.hidden_size)}),
                   bytes_of({c.projection_dim, c.vision.hidden_size})});
}

}  // namespace

double largest_tensor_of(const ClipTextConfig& c, const DataConfig& data) {
  return std::max({bytes_of_layer(data.micro_batch_size, data.sequence_length, c.hidden_size, c.intermediate_size,
                                  c.num_attention_heads),
                   bytes_of({c.vocab_size, c.hidden_size}), bytes_of({c.max_position_embeddings, c.hidden_size})});
}

void pair_with_texts(ModelTraits& t, const ClipTextConfig& text) {
  t.takes_text = t.contrastive = true;
  t.max_images = 1;
  t.text.max_position_embeddings = t.max_sequence_length = t.default_sequence_length = text.max_position_embeddings;
  t.hidden_size = text.hidden_size;  // CLIPConfig and SiglipConfig have none of their own: text_config's counts
  t.tower = "vision_model";
  t.language = "text_model";
  t.has_loss = true;
  t.losses = {};
}

double largest_tensor_of(const ClipVisionConfig& c, const DataConfig& data) {
  const std::int64_t images = data.all_tiles();
  return std::max({bytes_of_layer(images, c.num_positions(), c.hidden_size, c.intermediate_size, c.num_attention_heads),
                   bytes_of({std::max<std::int64_t>(images, 1), c.num_channels, c.image_size, c.image_size}),
                   bytes_of({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}),
                   bytes_of({images, c.num_patches(), c.num_channels, c.patch_size, c.patch_size}),
                   bytes_of({c.num_positions(), c.hidden_size}), bytes_of({c.hidden_size, c.projection_dim})});
}

ModelTraits clip_vision_traits(const ClipVisionConfig& c) {
  ModelTraits t = transformers_traits("CLIPVisionModel");
  t.takes_images = true;
  t.min_images = 1;
  t.images_why = "the model reads nothing else";
  t.image_keys = {"image_size"};
  t.image_size = c.image_size;
  t.convolutions = 1;
  t.hidden_size = c.hidden_size;
  t.has_loss = false;
  t.losses = {"pooler_output", "last_hidden_state"};
  t.no_split_modules = {c.family->encoder_layer};
  t.allow({Feature::flash_attention_2});
  return t;
}

namespace family {
extern const Family clip{.classes = kClasses,
                         .blocks = kBlocks,
                         .read = read,
                         .build = build,
                         .traits = traits,
                         .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
