#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/encoder.h"
#include "models/rt_detr/rt_detr.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"rt_detr", "RTDetrForObjectDetection"}};
constexpr const char* kBlocks[] = {kRTDetr.encoder, kRTDetr.decoder_layer};

void read_backbone(ConfigReader& reader, RTDetrConfig& c) {
  c.backbone.hidden_act = Activation::relu;
  if (reader.boolean("use_timm_backbone", false))
    reader.fail_found("use_timm_backbone", "not-modelled", "timm's backbones are not supported yet: expected false");
  if (!reader.has("backbone_config") || reader.is_null("backbone_config")) return;
  ConfigReader backbone = reader.object("backbone_config");
  if (backbone.text("model_type", "rt_detr_resnet") != "rt_detr_resnet")
    return backbone.fail_found("model_type", "not-modelled",
                               "another backbone is not supported yet: expected rt_detr_resnet");
  c.num_channels = c.backbone.num_channels = backbone.integer("num_channels", 3);
  c.backbone.hidden_act = backbone.activation("hidden_act", c.backbone.hidden_act);
  const std::vector<std::string> names = backbone.texts("out_features");
  const std::vector<std::int64_t> indices = backbone.integers("out_indices", {1, 8});
  read_resnet_sizes(backbone, c.backbone);
  const std::size_t stages = c.backbone.depths.size();
  c.features.clear();
  for (std::size_t i = 1; i <= stages; ++i)
    if (std::count(names.begin(), names.end(), "stage" + std::to_string(i)) > 0 ||
        std::count(indices.begin(), indices.end(), static_cast<std::int64_t>(i)) > 0)
      c.features.push_back(i);
  if (names.empty() && indices.empty()) c.features = {stages};
  if (c.features.size() != std::max<std::size_t>({names.size(), indices.size(), 1}))
    backbone.fail_found(names.empty() ? "out_indices" : "out_features", "not-modelled",
                        "expected stages, 1 to " + std::to_string(stages));
  if (c.backbone.embedding_size < 2) backbone.fail_found("embedding_size", "inconsistent", "expected at least 2");
  if (reader.ok() && c.backbone.is_basic && !c.backbone.downsample_in_first_stage &&
      c.backbone.hidden_sizes[0] != c.backbone.embedding_size)
    backbone.fail_found("embedding_size", "inconsistent",
                        "the class halves the image beside its first basic layer where its channels change: expected "
                        "the first of hidden_sizes");
  backbone.ignore({"architectures", "num_labels", "id2label", "label2id", "problem_type", "torch_dtype", "dtype"});
  backbone.finish();
}

/// Lists of one number for each of the maps that the backbone hands on.
void check_levels(ConfigReader& reader, const RTDetrConfig& c) {
  const std::string levels = std::to_string(c.levels()) + ", one for each stage of the backbone that is handed on";
  const auto check = [&](const char* key, const std::vector<std::int64_t>& usual,
                         const std::vector<std::int64_t>& expected) {
    std::vector<std::int64_t> given = reader.integers(key, {1, 1 << 16});
    if (given.empty()) given = usual;
    if (static_cast<std::int64_t>(given.size()) != c.levels())
      reader.fail_found(key, "not-modelled", "another number of them is not supported yet: expected " + levels);
    else if (!expected.empty() && given != expected)
      reader.fail_found(key, "inconsistent", "the class could not run: expected what its parts before it give");
  };
  std::vector<std::int64_t> channels;
  for (const std::size_t stage : c.features) channels.push_back(c.backbone.hidden_sizes[stage - 1]);
  check("encoder_in_channels", {512, 1024, 2048}, {});
  check("feat_strides", {8, 16, 32}, {});
  check("decoder_in_channels", {256, 256, 256},
        std::vector<std::int64_t>(static_cast<std::size_t>(c.levels()), c.encoder_hidden_dim));
  for (const char* key : {"num_feature_levels", "decoder_n_levels"})
    if (reader.integer(key, 3, {1, 8}) != c.levels())
      reader.fail_found(key, "not-modelled", "another number is not supported yet: expected " + levels);
  for (const std::int64_t one : c.encode_proj_layers)
    if (one >= c.levels())
      reader.fail_found("encode_proj_layers", "inconsistent", "expected numbers below " + std::to_string(c.levels()));
}

}  // namespace

RTDetrConfig read_rt_detr(ConfigReader& reader, const ModelClass& of, const RTDetrClassNames& classes) {
  RTDetrConfig c;
  c.classes = &classes;
  c.class_name = of.class_name;
  c.num_labels = read_num_labels(reader);
  c.hidden_act = reader.activation("activation_function", Activation::silu);
  c.encoder_activation_function = reader.activation("encoder_activation_function", Activation::gelu);
  c.decoder_activation_function = reader.activation("decoder_activation_function", Activation::relu);
  c.encoder_hidden_dim = reader.integer("encoder_hidden_dim", c.encoder_hidden_dim, {4, 1 << 14});
  c.encoder_layers = reader.integer("encoder_layers", c.encoder_layers, layer_count);
  c.encoder_ffn_dim = reader.integer("encoder_ffn_dim", c.encoder_ffn_dim);
  c.encoder_attention_heads = reader.integer("encoder_attention_heads", c.encoder_attention_heads);
  if (const auto given = reader.integers("encode_proj_layers", {0, 7}); !given.empty()) c.encode_proj_layers = given;
  c.normalize_before = reader.boolean("normalize_before", false);
  c.freeze_backbone_batch_norms = reader.boolean("freeze_backbone_batch_norms", true);
  const double expansion = reader.number("hidden_expansion", 1, 0.01, 16);
  c.hidden_channels =
      std::max<std::int64_t>(static_cast<std::int64_t>(static_cast<double>(c.encoder_hidden_dim) * expansion), 1);
  c.d_model = reader.integer("d_model", c.d_model, {4, 1 << 14});
  c.num_queries = reader.integer("num_queries", c.num_queries, {1, 1 << 16});
  c.decoder_layers = reader.integer("decoder_layers", c.decoder_layers, layer_count);
  c.decoder_ffn_dim = reader.integer("decoder_ffn_dim", c.decoder_ffn_dim);
  c.decoder_attention_heads = reader.integer("decoder_attention_heads", c.decoder_attention_heads);
  c.decoder_n_points = reader.integer("decoder_n_points", c.decoder_n_points, {1, 64});
  c.num_denoising = reader.integer("num_denoising", c.num_denoising, {0, 1 << 16});
  c.label_noise_ratio = reader.number("label_noise_ratio", c.label_noise_ratio, 0, 1);
  c.box_noise_scale = reader.number("box_noise_scale", c.box_noise_scale, 0, 100);
  c.dropout = reader.number("dropout", 0, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.use_focal_loss = reader.boolean("use_focal_loss", true);
  c.auxiliary_loss = reader.boolean("auxiliary_loss", true);
  const auto divides = [&](const char* key, std::int64_t heads, std::int64_t width, const char* of_what) {
    if (width % heads != 0)
      reader.fail_found(key, "inconsistent",
                        "expected a divisor of " + std::string(of_what) + " (" + std::to_string(width) + ")");
  };
  divides("encoder_attention_heads", c.encoder_attention_heads, c.encoder_hidden_dim, "encoder_hidden_dim");
  divides("decoder_attention_heads", c.decoder_attention_heads, c.d_model, "d_model");
  if (c.encoder_hidden_dim % 4 != 0)
    reader.fail_found("encoder_hidden_dim", "inconsistent", "expected a multiple of 4, for its positions");
  if (reader.boolean("learn_initial_query", false))
    reader.fail_found("learn_initial_query", "inconsistent",
                      "the class calls a method that its nn.Embedding does not have: expected false");
  for (const char* key : {"anchor_image_size", "eval_size"})
    if (reader.has(key) && !reader.is_null(key))
      reader.fail_found(key, "not-modelled", "this is not supported yet: expected null");
  if (reader.has("decoder_method") && reader.text("decoder_method", "default") != "default")
    reader.fail_found("decoder_method", "not-modelled", "this is not supported yet: expected default");
  if (!reader.boolean("tie_word_embeddings", true) && classes.ties_heads)
    reader.fail_found("tie_word_embeddings", "not-modelled",
                      "heads that are not tied to the decoder's are not supported yet: expected true");
  read_backbone(reader, c);
  if (reader.ok()) check_levels(reader, c);
  ignore_loss_weights(reader);
  reader.ignore({"label2id",
                 "id2label",
                 "backbone",
                 "use_pretrained_backbone",
                 "backbone_kwargs",
                 "initializer_range",
                 "initializer_bias_prior_prob",
                 "layer_norm_eps",
                 "batch_norm_eps",
                 "positional_encoding_temperature",
                 "disable_custom_kernels",
                 "with_box_refine",
                 "is_encoder_decoder",
                 "matcher_alpha",
                 "matcher_gamma",
                 "matcher_class_cost",
                 "matcher_bbox_cost",
                 "matcher_giou_cost",
                 "focal_loss_alpha",
                 "focal_loss_gamma",
                 "weight_loss_vfl",
                 "weight_loss_bbox",
                 "weight_loss_giou",
                 "decoder_offset_scale",
                 "hidden_size",
                 "num_attention_heads"});
  return c;
}

ModelTraits rt_detr_traits(const RTDetrConfig& c) {
  ModelTraits t = vit_traits(c);
  t.hidden_size = c.d_model;
  t.tower = "model.backbone";
  const auto levels = c.levels();
  t.convolutions = c.backbone.convolutions() + 2 + 2 * levels + (levels - 1) * 18;
  t.no_split_modules = {c.classes->encoder, c.classes->decoder_layer};
  set_detection_traits(t);
  t.has_idle_parts = !c.auxiliary_loss;  // what earlier layers and the encoder predict
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers refuses it for models whose backbone is a ResNet: expected eager or sdpa");
  t.refuse(Feature::checkpointing, "inconsistent",
           t.class_name + " has no gradient checkpointing in transformers (a ValueError): expected none");
  if (c.freeze_backbone_batch_norms)
    t.refuse(Feature::zero3, "inconsistent",
             "the class copies its backbone's norms while it is made, which ZeRO-3 has cut by then (a RuntimeError)");
  else
    t.refuse(Feature::zero3, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor_of_rt_detr(const RTDetrConfig& c, const DataConfig& data) {
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1), height = data.image_height,
                     width = data.image_width;
  const std::int64_t stem = checked_product((height + 3) / 4, (width + 3) / 4);
  const auto first = static_cast<std::int64_t>(c.features.front());
  std::int64_t finest = stem;
  for (std::int64_t i = 1; i < first; ++i) finest = (finest + 3) / 4;
  const std::int64_t places = 2 * finest, objects = std::max<std::int64_t>(data.target_length, 1),
                     queries = c.num_queries + c.denoising_queries(objects),
                     copies = checked_product(images, checked_product(objects, c.denoising_groups(objects)));
  double largest =
      std::max({largest_tensor_of_resnet(c.backbone, images, height, width),
                bytes_of({images, 9 * c.encoder_hidden_dim, places}), bytes_of({images, 2 * c.hidden_channels, places}),
                bytes_of_layer(images, finest, c.encoder_hidden_dim, c.encoder_ffn_dim, c.encoder_attention_heads),
                bytes_of_layer(images, queries, c.d_model, c.decoder_ffn_dim, c.decoder_attention_heads),
                bytes_of({images, queries, c.d_model, c.levels() * c.decoder_n_points}),
                bytes_of({c.decoder_layers, images, queries, std::max(c.d_model, c.num_labels + 1)}),
                bytes_of({images, places, std::max(c.d_model, c.num_labels + 1)}), bytes_of({queries, queries}),
                bytes_of({c.d_model, std::max(2 * c.d_model, c.num_labels + 1)}), bytes_of({copies, copies, 2})});
  return std::max(largest, largest_tensor_of_detection(data, queries, c.num_labels));
}

void read_rt_detr_images(ConfigReader& reader, const FamilyConfig&, DataConfig& data) {
  read_detection_images(reader, true, {640, 640}, data);
}

namespace {

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) { return read_rt_detr(reader, of, kRTDetr); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_rt_detr(context, config.as<RTDetrConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) { return rt_detr_traits(config.as<RTDetrConfig>()); }

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_rt_detr(config.as<RTDetrConfig>(), data);
}

}  // namespace

namespace family {
extern const Family rt_detr{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .read_images = read_rt_detr_images};
}  // namespace family

}  // namespace oometer
