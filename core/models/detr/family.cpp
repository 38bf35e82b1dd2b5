#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/detr/detr.h"
#include "models/kit/encoder.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"detr", "DetrForObjectDetection"}, {"detr", "DetrModel"}};
constexpr const char* kBlocks[] = {kDetr.conv_encoder, kDetr.encoder_layer, kDetr.decoder_layer};

void find_timm(ConfigReader& reader, DetrConfig& c) {
  c.timm = find_timm_resnet(reader.text("backbone", "resnet50"));
  if (!c.timm)
    return reader.fail_found("backbone", "not-modelled",
                             "another backbone of timm's is not supported yet: expected resnet18, resnet34, resnet50, "
                             "resnet101 or resnet152");
  c.backbone = c.timm->sizes(c.num_channels);
}

/// class TimmBackboneConfig (models/timm_backbone/configuration_timm_backbone.py), as the configs of DETR and its kin
/// write it down.
void read_timm_backbone(ConfigReader& backbone, DetrConfig& c) {
  find_timm(backbone, c);
  if (backbone.integer("num_channels", 3) != c.num_channels)
    backbone.fail_found("num_channels", "inconsistent", "expected as many as the model's num_channels");
  if (!backbone.boolean("features_only", true))
    backbone.fail_found("features_only", "inconsistent", "expected true: the model needs feature maps");
  if (backbone.boolean("freeze_batch_norm_2d", false))
    backbone.fail_found("freeze_batch_norm_2d", "not-modelled", "this is not supported yet: expected false");
  c.output_stride = 32;
  if (backbone.has("output_stride") && !backbone.is_null("output_stride")) {
    c.output_stride = backbone.integer("output_stride", 32, {8, 32});
    if (c.output_stride != 8 && c.output_stride != 16 && c.output_stride != 32)
      backbone.fail_found("output_stride", "inconsistent", "expected 8, 16 or 32");
  }
  c.features.clear();
  for (const std::int64_t index : backbone.integers("out_indices", {-5, 4}))
    c.features.push_back(static_cast<std::size_t>(index < 0 ? index + 5 : index));
  if (!backbone.has("out_indices")) c.features = {4};
  for (std::size_t i = 0; i < c.features.size(); ++i)
    if (c.features[i] == 0 || (i > 0 && c.features[i] <= c.features[i - 1])) c.features.clear();
  if (c.features.empty() || c.features.back() != 4) {
    backbone.fail_found("out_indices", "not-modelled",
                        "expected stages from 1 to 4 in their order, of which 4 is the last");
    c.features = {4};
  }
  backbone.ignore({"architectures", "out_features", "use_pretrained_backbone", "id2label", "label2id", "problem_type",
                   "is_encoder_decoder", "chunk_size_feed_forward", "output_attentions", "output_hidden_states",
                   "return_dict"});
}

void read_backbone(ConfigReader& reader, DetrConfig& c) {
  const bool has_own = reader.has("backbone_config");
  if (!has_own && reader.boolean("use_timm_backbone", true)) {
    find_timm(reader, c);
    if (reader.boolean("dilation", false)) c.output_stride = 16;  // DC5
    if (reader.has("backbone_kwargs") && !reader.is_null("backbone_kwargs"))
      reader.fail_found("backbone_kwargs", "not-modelled", "these are not supported yet: expected null");
    c.features = {1, 2, 3, 4};
    return;
  }
  c.backbone.hidden_act = Activation::relu;
  if (has_own) {
    ConfigReader backbone = reader.object("backbone_config");
    const std::string type = backbone.text("model_type", "resnet");
    if (type == "timm_backbone") {
      read_timm_backbone(backbone, c);
      return backbone.finish();
    }
    if (type != "resnet")
      return backbone.fail_found("model_type", "not-modelled",
                                 "another backbone is not supported yet: expected resnet or timm_backbone");
    c.backbone.num_channels = backbone.integer("num_channels", c.num_channels);
    c.backbone.hidden_act = backbone.activation("hidden_act", c.backbone.hidden_act);
    const std::vector<std::string> names = backbone.texts("out_features");
    if (backbone.has("out_indices"))
      backbone.fail_found("out_indices", "not-modelled", "this is not supported yet: expected out_features");
    read_resnet_sizes(backbone, c.backbone);
    const std::size_t stages = c.backbone.depths.size();
    c.features.clear();
    for (std::size_t i = 1; i <= stages; ++i)
      if (std::count(names.begin(), names.end(), "stage" + std::to_string(i)) > 0) c.features.push_back(i);
    if (names.empty()) c.features = {stages};
    if (c.features.size() != std::max<std::size_t>(names.size(), 1))
      backbone.fail_found("out_features", "not-modelled",
                          "expected stages, \"stage1\" to \"stage" + std::to_string(stages) + "\"");
    backbone.ignore(
        {"architectures", "num_labels", "id2label", "label2id", "patch_size", "image_size", "problem_type"});
    backbone.finish();
  }
  if (c.backbone.num_channels != c.num_channels)
    reader.fail_found("num_channels", "inconsistent", "expected as many as the backbone takes");
}

}  // namespace

DetrConfig read_detr(ConfigReader& reader, const ModelClass& of, bool detects, const DetrClassNames& classes,
                     std::int64_t usual_ffn_dim) {
  DetrConfig c;
  c.encoder_ffn_dim = c.decoder_ffn_dim = usual_ffn_dim;
  c.classes = &classes;
  c.class_name = of.class_name;
  c.detects = detects;
  c.num_labels = read_num_labels(reader);
  c.num_channels = reader.integer("num_channels", c.num_channels);
  c.hidden_act = reader.activation("activation_function", Activation::relu);
  c.num_queries = reader.integer("num_queries", &classes == &kDetr ? 100 : 300, {1, 1 << 16});
  c.d_model = reader.integer("d_model", c.d_model, {4, 1 << 16});
  const auto read_half = [&](const char* layers, const char* width, const char* heads, std::int64_t& count,
                             std::int64_t& dim, std::int64_t& number) {
    count = reader.integer(layers, count, layer_count);
    dim = reader.integer(width, dim);
    number = reader.integer(heads, number);
    if (c.d_model % number != 0)
      reader.fail_found(heads, "inconsistent", "expected a divisor of d_model (" + std::to_string(c.d_model) + ")");
  };
  read_half("encoder_layers", "encoder_ffn_dim", "encoder_attention_heads", c.encoder_layers, c.encoder_ffn_dim,
            c.encoder_attention_heads);
  read_half("decoder_layers", "decoder_ffn_dim", "decoder_attention_heads", c.decoder_layers, c.decoder_ffn_dim,
            c.decoder_attention_heads);
  c.dropout = reader.number("dropout", c.dropout, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.activation_dropout = reader.number("activation_dropout", 0, 0, 1);
  c.auxiliary_loss = reader.boolean("auxiliary_loss", false);
  if (c.d_model % 4 != 0) reader.fail_found("d_model", "inconsistent", "expected a multiple of 4, for its positions");
  if (reader.text("position_embedding_type", "sine") != "sine")
    reader.fail_found("position_embedding_type", "not-modelled",
                      "learned positions are not supported yet: expected sine");
  read_backbone(reader, c);
  ignore_loss_weights(reader);
  reader.ignore({"label2id", "id2label", "backbone", "use_timm_backbone", "use_pretrained_backbone", "backbone_kwargs",
                 "dilation", "init_std", "init_xavier_std", "is_encoder_decoder", "encoder_layerdrop",
                 "decoder_layerdrop", "num_hidden_layers", "max_position_embeddings", "scale_embedding",
                 "classifier_dropout"});
  return c;
}

ModelTraits detr_traits(const DetrConfig& c) {
  ModelTraits t = vit_traits(c);
  t.image_size = 0;  // any
  t.hidden_size = c.d_model;
  t.tower = c.detects ? "model.backbone" : "backbone";
  t.convolutions = c.backbone.convolutions() + 1;
  t.no_split_modules = {c.classes->conv_encoder, c.classes->encoder_layer, c.classes->decoder_layer};
  if (c.detects)
    set_detection_traits(t);
  else
    t.losses = {"last_hidden_state"};
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers refuses it for models whose backbone is a ResNet: expected eager or sdpa");
  t.refuse(Feature::zero3, "inconsistent",
           "the class copies its backbone's norms while it is made, which ZeRO-3 has cut by then (a RuntimeError)");
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor_of_detr(const DetrConfig& c, const DataConfig& data) {
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1);
  std::int64_t height = data.image_height, width = data.image_width;
  double largest = largest_tensor_of_resnet(c.backbone, images, height, width);
  const std::size_t dilated = c.output_stride == 8    ? 2
                              : c.output_stride == 16 ? 1
                                                      : 0,
                    halvings = c.features.back() + 1 - dilated + (c.backbone.downsample_in_first_stage ? 1 : 0);
  for (std::size_t i = 0; i < halvings; ++i) {
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
  const std::int64_t tokens = checked_product(std::max<std::int64_t>(height, 1), std::max<std::int64_t>(width, 1));
  largest =
      std::max({largest, bytes_of_layer(images, tokens, c.d_model, c.encoder_ffn_dim, c.encoder_attention_heads),
                bytes_of_layer(images, c.num_queries, c.d_model, c.decoder_ffn_dim, c.decoder_attention_heads),
                bytes_of({images, c.decoder_attention_heads, c.num_queries, tokens}),
                bytes_of({c.decoder_layers, images, c.num_queries, std::max(c.d_model, c.num_labels + 1)}),
                bytes_of({c.d_model, std::max(c.backbone.hidden_sizes[c.features.back() - 1], c.num_labels + 1)})});
  return c.detects ? std::max(largest, largest_tensor_of_detection(data, c.num_queries, c.num_labels)) : largest;
}

namespace {

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_detr(reader, of, &of == &kClasses[0], kDetr);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_detr(context, config.as<DetrConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) { return detr_traits(config.as<DetrConfig>()); }

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_detr(config.as<DetrConfig>(), data);
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  read_detection_images(reader, config.as<DetrConfig>().detects, kUsualImage, data);
}

}  // namespace

namespace family {
extern const Family detr{.classes = kClasses,
                         .blocks = kBlocks,
                         .read = read,
                         .build = build,
                         .traits = traits,
                         .largest_tensor = largest_tensor,
                         .read_images = read_images};
}  // namespace family

}  // namespace oometer
