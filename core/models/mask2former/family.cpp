#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/encoder.h"
#include "models/mask2former/mask2former.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"mask2former", "Mask2FormerForUniversalSegmentation"}};
constexpr const char* kBlocks[] = {"SwinStage", kSwin.layer, "Mask2FormerPixelDecoderEncoderLayer",
                                   "Mask2FormerMaskedAttentionDecoderLayer"};
constexpr ModelClass kSwinBackbone{"swin", "SwinBackbone"};
constexpr std::int64_t kUsualSide = 384;  ///< of the published processors

void read_backbone(ConfigReader& reader, Mask2FormerConfig& c) {
  c.swin.names = &kSwin;
  if (reader.has("backbone") && !reader.is_null("backbone"))
    reader.fail_found("backbone", "not-modelled", "a backbone by name is not supported yet: expected backbone_config");
  if (!reader.has("backbone_config") || reader.is_null("backbone_config")) {  // sub_configs_defaults
    c.swin.depths = {2, 2, 18, 2};
    c.swin.drop_path_rate = 0.3;
    c.swin.patch_size = 4;
    c.swin.hidden_size = c.swin.dim(3);
    return;
  }
  ConfigReader backbone = reader.object("backbone_config");
  if (backbone.text("model_type", "swin") != "swin")
    return backbone.fail_found("model_type", "not-modelled", "another backbone is not supported yet: expected swin");
  read_swin_sizes(backbone, kSwinBackbone, c.swin);
  if (c.swin.use_absolute_embeddings)
    backbone.fail_found("use_absolute_embeddings", "not-modelled", "this is not supported yet: expected false");
  c.num_channels = c.swin.num_channels;
  c.features = read_out_features(backbone, c.swin.depths.size());
  if (reader.ok() && c.features.front() == 0)
    backbone.fail_found("out_features", "not-modelled", "the stem is not supported yet: expected stages");
  backbone.ignore({"architectures", "torch_dtype", "dtype"});
  backbone.finish();
}

void read_levels(ConfigReader& reader, Mask2FormerConfig& c) {
  std::vector<std::int64_t> strides = reader.integers("feature_strides", {1, 1024});
  if (strides.empty()) strides = {4, 8, 16, 32};
  const std::int64_t common_stride = reader.integer("common_stride", 4, {1, 1024});
  if (!reader.ok()) return;
  if (c.features.size() < static_cast<std::size_t>(Mask2FormerConfig::kLevels))
    return reader.fail_found("backbone_config", "inconsistent",
                             "the pixel decoder reads the last three maps of the backbone: expected as many "
                             "out_features, or more");
  const std::size_t first = strides.size() < 3 ? 0 : strides.size() - 3;
  std::int64_t stride = *std::min_element(strides.begin() + static_cast<std::ptrdiff_t>(first), strides.end());
  c.fpn_levels = 0;
  for (; stride >= 2 * common_stride; stride /= 2) ++c.fpn_levels;
  const auto most = std::min<std::int64_t>(static_cast<std::int64_t>(c.features.size()), 4);
  if (c.fpn_levels > most)
    reader.fail_found("common_stride", "inconsistent",
                      "expected one that the backbone's maps reach, of which there are " + std::to_string(most));
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  Mask2FormerConfig c;
  c.class_name = of.class_name;
  c.patch_size = 1;
  c.num_labels = read_num_labels(reader);
  c.feature_size = reader.integer("feature_size", c.feature_size, {4, 1 << 14});
  c.mask_feature_size = reader.integer("mask_feature_size", c.mask_feature_size, {1, 1 << 14});
  c.hidden_dim = reader.integer("hidden_dim", c.hidden_dim, {4, 1 << 14});
  c.encoder_feedforward_dim = reader.integer("encoder_feedforward_dim", c.encoder_feedforward_dim);
  c.dim_feedforward = reader.integer("dim_feedforward", c.dim_feedforward);
  c.encoder_layers = reader.integer("encoder_layers", c.encoder_layers, layer_count);
  c.decoder_layers = reader.integer("decoder_layers", c.decoder_layers, layer_count);
  c.heads = reader.integer("num_attention_heads", c.heads);
  c.num_queries = reader.integer("num_queries", c.num_queries, {1, 1 << 16});
  c.activation_function = reader.activation("activation_function", Activation::relu);
  c.pre_norm = reader.boolean("pre_norm", false);
  c.enforce_input_projection = reader.boolean("enforce_input_projection", false);
  c.train_num_points = reader.integer("train_num_points", c.train_num_points, {1, 1 << 20});
  const double points = static_cast<double>(c.train_num_points),
               oversample = reader.number("oversample_ratio", 3, 1, 64),
               important = reader.number("importance_sample_ratio", 0.75, 0, 1);
  c.sampled_points = static_cast<std::int64_t>(points * oversample);
  c.uncertain_points = static_cast<std::int64_t>(important * points);
  if (reader.number("dropout", 0, 0, 1) > 0)
    reader.fail_found("dropout", "not-modelled",
                      "the class then leaves layers out at random, which is not supported yet: expected 0");
  if (!reader.boolean("use_auxiliary_loss", true))
    reader.fail_found("use_auxiliary_loss", "inconsistent",
                      "without it the class hands no states to its head (a TypeError): expected true");
  if (reader.ok() && c.uncertain_points == 0)
    reader.fail_found("importance_sample_ratio", "not-modelled", "no such points are not supported yet: expected some");
  for (const auto& [key, width] : {std::pair{"feature_size", c.feature_size}, std::pair{"hidden_dim", c.hidden_dim}})
    if (width % c.heads != 0 || width % 4 != 0)
      reader.fail_found(
          key, "inconsistent",
          "expected a multiple of num_attention_heads (" + std::to_string(c.heads) + ") and of 4, for its positions");
  if (c.feature_size % 32 != 0)
    reader.fail_found("feature_size", "inconsistent", "expected a multiple of 32, the groups of its norms");
  read_backbone(reader, c);
  if (reader.ok()) read_levels(reader, c);
  reader.ignore({"label2id", "id2label", "ignore_value", "no_object_weight", "class_weight", "mask_weight",
                 "dice_weight", "init_std", "init_xavier_std", "output_auxiliary_logits", "use_timm_backbone",
                 "use_pretrained_backbone", "backbone_kwargs", "backbone", "hidden_size", "num_hidden_layers",
                 "backbone_config"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_mask2former(context, config.as<Mask2FormerConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Mask2FormerConfig>();
  ModelTraits t = vit_traits(c);
  t.hidden_size = c.hidden_dim;
  t.tower = "model.pixel_level_module";
  t.convolutions = 1 + Mask2FormerConfig::kLevels + 1 + 2 * c.fpn_levels;
  if (c.feature_size != c.hidden_dim || c.enforce_input_projection) t.convolutions += Mask2FormerConfig::kLevels;
  t.no_split_modules = {};
  set_detection_traits(t);
  t.precisions_why = "torch.grid_sample takes maps and places of one type, so the class wants float32 or autocast";
  t.has_idle_parts = true;  // SwinModel's norm
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers refuses it for " + t.class_name + ": expected eager or sdpa");
  for (const Feature feature : {Feature::fsdp, Feature::zero3})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::checkpointing, "inconsistent",
           t.class_name + " has no gradient checkpointing in transformers (a ValueError): expected none");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Mask2FormerConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1), height = data.image_height,
                     width = data.image_width, objects = std::max<std::int64_t>(data.target_length, 1),
                     masks = checked_product(images, objects);
  const std::int64_t finest = checked_product((height + c.swin.patch_size - 1) / c.swin.patch_size,
                                              (width + c.swin.patch_size - 1) / c.swin.patch_size);
  const std::int64_t widest = std::max({c.feature_size, c.mask_feature_size, c.hidden_dim, c.num_queries});
  return std::max({largest_tensor_of_swin(c.swin, images, height, width), bytes_of({images, 9 * widest, finest}),
                   bytes_of({images, finest, std::max(c.encoder_feedforward_dim, 24 * c.heads)}),
                   bytes_of({images, c.heads, c.num_queries, finest}),
                   bytes_of({images, c.num_queries, std::max(c.dim_feedforward, c.num_labels + 1)}),
                   bytes_of({masks, height, width}), bytes_of({masks, c.sampled_points, 4}),
                   bytes_of({std::max(c.num_queries, objects), c.train_num_points, 2}),
                   bytes_of({c.hidden_dim, std::max(3 * c.hidden_dim, c.dim_feedforward)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const std::int64_t patch = config.as<Mask2FormerConfig>().swin.patch_size;
  read_detection_images(reader, true, {kUsualSide, kUsualSide}, data);
  if (reader.ok() && (data.image_height % patch != 0 || data.image_width % patch != 0))
    reader.fail_found(
        "image_size", "not-modelled",
        "images that patches do not fill are not supported yet: expected multiples of " + std::to_string(patch));
}

}  // namespace

namespace family {
extern const Family mask2former{.classes = kClasses,
                                .blocks = kBlocks,
                                .read = read,
                                .build = build,
                                .traits = traits,
                                .largest_tensor = largest_tensor,
                                .read_images = read_images};
}  // namespace family

}  // namespace oometer
