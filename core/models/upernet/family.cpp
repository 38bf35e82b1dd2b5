#include "models/family.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <tuple>

#include "config/reader.h"
#include "models/kit/encoder.h"
#include "models/kit/image_size.h"
#include "models/sizes.h"
#include "models/upernet/upernet.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"upernet", "UperNetForSemanticSegmentation"}};
constexpr const char* kBlocks[] = {"SwinStage",     kSwin.layer,   "ConvNextStage",
                                   "ConvNextLayer", "ResNetStage", "UperNetConvModule"};
constexpr ModelClass kConvNextBackbones[] = {{"convnext", "ConvNextBackbone"}, {"convnextv2", "ConvNextV2Backbone"}};
constexpr ModelClass kSwinBackbone{"swin", "SwinBackbone"};
constexpr std::int64_t kUsualSide = 512;  ///< of the published processors

void read_backbone(ConfigReader& reader, UperNetConfig& c) {
  c.resnet.hidden_act = Activation::relu;
  if (reader.has("backbone") && !reader.is_null("backbone"))
    reader.fail_found("backbone", "not-modelled", "a backbone by name is not supported yet: expected backbone_config");
  if (!reader.has("backbone_config") || reader.is_null("backbone_config")) return;
  ConfigReader backbone = reader.object("backbone_config");
  const std::string type = backbone.text("model_type", "");
  std::size_t stages = 0;
  if (type == "swin") {
    c.backbone = UperNetBackbone::swin;
    c.swin.names = &kSwin;
    read_swin_sizes(backbone, kSwinBackbone, c.swin);
    if (c.swin.use_absolute_embeddings)
      backbone.fail_found("use_absolute_embeddings", "not-modelled", "this is not supported yet: expected false");
    stages = c.swin.depths.size();
    c.num_channels = c.swin.num_channels;
  } else if (type == "convnext" || type == "convnextv2") {
    c.backbone = UperNetBackbone::convnext;
    if (!backbone.has("hidden_sizes"))
      backbone.fail("hidden_sizes", "inconsistent",
                    "the backbone's class cannot use its config's own default (a TypeError): expected the channels of "
                    "its stages, as [96, 192, 384, 768]");
    read_convnext_sizes(backbone, kConvNextBackbones[type == "convnextv2" ? 1 : 0], c.convnext);
    stages = c.convnext.depths.size();
    c.num_channels = c.convnext.num_channels;
  } else if (type == "resnet") {
    c.num_channels = c.resnet.num_channels = backbone.integer("num_channels", 3);
    c.resnet.hidden_act = backbone.activation("hidden_act", c.resnet.hidden_act);
    read_resnet_sizes(backbone, c.resnet);
    stages = c.resnet.depths.size();
    backbone.ignore({"num_labels", "id2label", "label2id", "patch_size", "image_size", "problem_type"});
  } else {
    return backbone.fail_found("model_type", "not-modelled",
                               "another backbone is not supported yet: expected swin, convnext, convnextv2 or resnet");
  }
  c.features = read_out_features(backbone, stages);
  backbone.ignore({"architectures", "torch_dtype", "dtype"});
  backbone.finish();
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  UperNetConfig c;
  c.class_name = of.class_name;
  c.patch_size = 1;
  c.num_labels = read_num_labels(reader);
  c.hidden_size = reader.integer("hidden_size", 512);
  if (const auto scales = reader.integers("pool_scales", {1, 1024}); !scales.empty()) c.pool_scales = scales;
  c.use_auxiliary_head = reader.boolean("use_auxiliary_head", true);
  if (reader.has("auxiliary_in_channels") && !reader.is_null("auxiliary_in_channels"))
    c.auxiliary_in_channels = reader.integer("auxiliary_in_channels", 0);
  c.auxiliary_channels = reader.integer("auxiliary_channels", c.auxiliary_channels);
  c.auxiliary_num_convs = reader.integer("auxiliary_num_convs", 1, {0, 64});
  c.auxiliary_concat_input = reader.boolean("auxiliary_concat_input", false);
  read_backbone(reader, c);
  reader.ignore({"label2id", "id2label", "initializer_range", "auxiliary_loss_weight", "loss_ignore_index",
                 "use_timm_backbone", "use_pretrained_backbone", "backbone_kwargs", "backbone"});
  if (!reader.ok()) return c;
  if (c.num_labels == 1) reader.fail_found("num_labels", "inconsistent", "the class's loss wants two labels or more");
  if (!c.use_auxiliary_head) return c;
  const std::vector<std::int64_t> channels = c.channels();
  if (channels.size() < 3)
    reader.fail_found("use_auxiliary_head", "inconsistent",
                      "its input is the backbone's third map, of which there are " + std::to_string(channels.size()) +
                          ": expected false, or more out_features");
  else if (c.auxiliary_in_channels > 0 && c.auxiliary_in_channels != channels[2])
    reader.fail_found("auxiliary_in_channels", "inconsistent",
                      "expected the channels of the backbone's third map (" + std::to_string(channels[2]) + ")");
  else if (c.auxiliary_num_convs == 0 && !c.auxiliary_concat_input && channels[2] != c.auxiliary_channels)
    reader.fail_found(
        "auxiliary_channels", "inconsistent",
        "expected those of the backbone's third map (" + std::to_string(channels[2]) + "), which its classifier reads");
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_upernet(context, config.as<UperNetConfig>(), data, options);
}

std::int64_t backbone_convolutions(const UperNetConfig& c) {
  switch (c.backbone) {
    case UperNetBackbone::swin:
      return 1;
    case UperNetBackbone::convnext:
      return static_cast<std::int64_t>(c.convnext.depths.size()) + c.convnext.layers();
    case UperNetBackbone::resnet:
      break;
  }
  return c.resnet.convolutions();
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<UperNetConfig>();
  ModelTraits t = vit_traits(c);
  t.image_size = 0;  // any
  t.tower = "backbone";
  t.has_loss = true;
  t.losses = {};
  const auto levels = static_cast<std::int64_t>(c.features.size());
  t.convolutions = backbone_convolutions(c) + static_cast<std::int64_t>(c.pool_scales.size()) + 2 * levels + 1;
  if (c.use_auxiliary_head) t.convolutions += c.auxiliary_num_convs + (c.auxiliary_concat_input ? 2 : 1);
  t.no_split_modules = {};
  // SwinModel's norm, and stages behind the last map that is handed on
  t.has_idle_parts = c.backbone == UperNetBackbone::swin;
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers refuses it for " + t.class_name + ": expected eager or sdpa");
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::zero3, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::checkpointing, "inconsistent",
           t.class_name + " has no gradient checkpointing in transformers (a ValueError): expected none");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<UperNetConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1), height = data.image_height,
                     width = data.image_width, finest = checked_product((height + 1) / 2, (width + 1) / 2);
  double largest = bytes_of({images, c.num_labels, height, width});
  switch (c.backbone) {
    case UperNetBackbone::swin:
      largest = std::max(largest, largest_tensor_of_swin(c.swin, images, height, width));
      break;
    case UperNetBackbone::convnext:
      largest = std::max(largest, largest_tensor_of_convnext(c.convnext, data));
      break;
    case UperNetBackbone::resnet:
      largest = std::max(largest, largest_tensor_of_resnet(c.resnet, images, height, width));
      break;
  }
  const std::vector<std::int64_t> channels = c.channels();
  const std::int64_t most = *std::max_element(channels.begin(), channels.end()),
                     joined =
                         most + std::max(static_cast<std::int64_t>(std::max(c.pool_scales.size(), channels.size())) *
                                             c.hidden_size,
                                         c.auxiliary_channels);
  return std::max({largest, bytes_of({images, joined, finest}),
                   9 * bytes_of({joined, std::max(c.hidden_size, c.auxiliary_channels)})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<UperNetConfig>();
  const auto size = read_image_size(reader, data, {kUsualSide, kUsualSide});
  if (!size) return;
  std::tie(data.image_height, data.image_width) = *size;
  const std::int64_t patch = c.backbone == UperNetBackbone::swin ? c.swin.patch_size : 1;
  const std::int64_t least = c.backbone == UperNetBackbone::convnext ? c.convnext.smallest_image() : patch;
  if (size->first % patch != 0 || size->second % patch != 0)
    reader.fail_found(
        "image_size", "not-modelled",
        "images that patches do not fill are not supported yet: expected multiples of " + std::to_string(patch));
  else if (std::min(size->first, size->second) < least)
    reader.fail_found("image_size", "inconsistent",
                      "expected at least " + std::to_string(least) + " pixels each way, of which its stages leave one");
}

}  // namespace

namespace family {
extern const Family upernet{.classes = kClasses,
                            .blocks = kBlocks,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .read_images = read_images};
}  // namespace family

}  // namespace oometer
