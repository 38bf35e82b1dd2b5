#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/sam/sam.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"sam", "SamModel"}};
constexpr const char* kBlocks[] = {"SamVisionLayer"};
constexpr SamClassNames kSam{"SamVisionLayer",     "SamVisionAttention", "SamMLPBlock",           "SamVisionNeck",
                             "SamPatchEmbeddings", "SamLayerNorm",       "SamVisionSdpaAttention"};

void read_vision(ConfigReader& reader, SamModelConfig& c) {
  SamConfig defaults{.names = &kSam};
  const std::int64_t hidden = reader.integer("hidden_size", defaults.hidden_size);
  const double ratio = reader.number("mlp_ratio", 4, 0, 1024);
  defaults.mlp_dim = static_cast<std::int64_t>(static_cast<double>(hidden) * ratio);
  c.vision = read_sam_config(reader, defaults);
  c.num_pos_feats = reader.integer("num_pos_feats", c.num_pos_feats);
  reader.ignore({"initializer_range", "scale", "dropout", "initializer_factor", "intermediate_size", "projection_dim"});
  reader.finish();
}

void read_prompts(ConfigReader& reader, SamModelConfig& c) {
  const std::int64_t hidden = reader.integer("hidden_size", 256),
                     side = reader.integer("image_size", 1024, {1, 65'536}) /
                            reader.integer("patch_size", 16, {1, 65'536});
  c.mask_input_channels = reader.integer("mask_input_channels", c.mask_input_channels, {4, 65'536});
  c.num_point_embeddings = reader.integer("num_point_embeddings", c.num_point_embeddings, {4, 1024});
  reader.ignore({"model_type", "hidden_act", "layer_norm_eps", "image_embedding_size"});
  if (hidden != c.vision.output_channels || hidden != 2 * c.num_pos_feats)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected output_channels of vision_config (" + std::to_string(c.vision.output_channels) +
                          "), and twice its num_pos_feats (" + std::to_string(c.num_pos_feats) + ")");
  if (side != c.vision.side())
    reader.fail_found(
        "image_size", "inconsistent",
        "expected as many patches as vision_config has, " + std::to_string(c.vision.side()) + " each way");
  reader.finish();
}

void read_decoder(ConfigReader& reader, SamModelConfig& c) {
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.mlp_dim = reader.integer("mlp_dim", c.mlp_dim);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, {1, 1024});
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.attention_downsample_rate = reader.integer("attention_downsample_rate", c.attention_downsample_rate);
  c.num_multimask_outputs = reader.integer("num_multimask_outputs", c.num_multimask_outputs, {1, 1024});
  c.iou_head_depth = reader.integer("iou_head_depth", c.iou_head_depth, {2, 1024});
  c.iou_head_hidden_dim = reader.integer("iou_head_hidden_dim", c.iou_head_hidden_dim);
  reader.ignore({"model_type", "layer_norm_eps"});
  if (c.hidden_size != c.vision.output_channels)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected output_channels of vision_config (" + std::to_string(c.vision.output_channels) + ")");
  for (const std::int64_t rate : {std::int64_t{1}, std::int64_t{2}, c.attention_downsample_rate})
    if (c.hidden_size % rate != 0 || c.hidden_size / rate % c.num_attention_heads != 0)
      reader.fail_found("num_attention_heads", "inconsistent",
                        "expected a divisor of hidden_size (" + std::to_string(c.hidden_size) +
                            "), of half of it and "
                            "of hidden_size / attention_downsample_rate");
  if (c.hidden_size % 8 != 0)
    reader.fail_found("hidden_size", "inconsistent", "expected a multiple of 8, an eighth of which the masks have");
  reader.finish();
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  SamModelConfig c;
  ConfigReader vision = reader.object("vision_config"), prompts = reader.object("prompt_encoder_config"),
               decoder = reader.object("mask_decoder_config");
  read_vision(vision, c);
  if (reader.ok()) read_prompts(prompts, c);
  if (reader.ok()) read_decoder(decoder, c);
  if (!reader.boolean("tie_word_embeddings", true))
    reader.fail_found("tie_word_embeddings", "not-modelled",
                      "positions of its own for the prompt encoder are not "
                      "supported yet: expected true");
  reader.ignore({"initializer_range"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_sam(context, config.as<SamModelConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<SamModelConfig>();
  ModelTraits t = transformers_traits(kClasses[0].class_name);
  t.takes_images = true;
  t.has_idle_parts = true;  // the head that rates the masks, prompts of other kinds
  t.min_images = t.max_images = 1;
  t.images_why = "the model reads one image a sample";
  t.image_keys = {"image_size"};
  t.image_size = c.vision.image_size;
  t.convolutions = 5;
  t.oldest_transformers = {5, 23, 0};
  t.tower = "vision_encoder";
  t.has_loss = false;
  t.losses = {"pred_masks"};
  t.no_split_modules = {kBlocks[0]};
  t.refuse(Feature::quantization, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::zero3, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers has no flash attention for " + t.class_name + ": expected sdpa or eager");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<SamModelConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1), side = c.vision.side(),
                     widest = std::max({c.hidden_size, c.mlp_dim, c.iou_head_hidden_dim});
  return std::max(
      {largest_tensor_of(c.vision, images, c.vision.image_size), bytes_of({images, side * side, 2 * widest}),
       bytes_of({images, c.num_attention_heads, side * side, c.mask_tokens() + 3}),
       bytes_of({images, 16 * side * side, std::max(c.hidden_size, c.mask_tokens())}), bytes_of({widest, widest})});
}

}  // namespace

namespace family {
extern const Family sam{.classes = kClasses,
                        .blocks = kBlocks,
                        .read = read,
                        .build = build,
                        .traits = traits,
                        .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
