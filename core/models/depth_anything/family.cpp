#include "models/family.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "config/reader.h"
#include "models/depth_anything/depth_anything.h"
#include "models/kit/image_size.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"depth_anything", "DepthAnythingForDepthEstimation"}};
constexpr const char* kBlocks[] = {kDinov2.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DepthAnythingConfig c;
  c.class_name = of.class_name;
  if (reader.has("backbone"))
    reader.fail_found("backbone", "not-modelled", "a backbone by name is not supported yet: expected backbone_config");
  const bool is_given = reader.has("backbone_config");
  ConfigReader backbone = reader.object("backbone_config");
  if (backbone.text("model_type", "dinov2") != "dinov2")
    backbone.fail_found("model_type", "not-modelled", "another backbone is not supported yet: expected dinov2");
  if (!is_given) {  // sub_configs_defaults
    c.backbone.image_size = 518;
    c.backbone.hidden_size = 384;
    c.backbone.num_attention_heads = 6;
    c.backbone.out_indices = {9, 10, 11, 12};
  }
  read_dinov2_backbone(backbone, of, is_given, c.backbone);
  backbone.ignore({"architectures"});
  backbone.finish();
  c.patch_size = reader.integer("patch_size", c.patch_size);
  c.neck.names = &kDepthAnythingNeck;
  c.neck.follows_sizes = true;
  c.neck.hidden_size = reader.integer("reassemble_hidden_size", 384);
  c.neck.fusion_hidden_size = 64;
  c.neck.neck_hidden_sizes = {48, 96, 192, 384};
  c.neck.reassemble_factors = {4, 2, 1, 0.5};
  read_dpt_neck(reader, c.neck);
  c.head_in_index = reader.integer("head_in_index", -1, {-1024, 1024});
  c.head_hidden_size = reader.integer("head_hidden_size", c.head_hidden_size);
  c.is_metric = reader.choice<bool>("depth_estimation_type", false, {{"relative", false}, {"metric", true}});
  reader.ignore({"max_depth", "initializer_range", "backbone_kwargs", "use_pretrained_backbone", "use_timm_backbone"});
  if (!reader.ok()) return c;
  const auto stages = static_cast<std::int64_t>(c.neck.stages());
  if (c.neck.hidden_size != c.backbone.hidden_size)
    reader.fail_found("reassemble_hidden_size", "inconsistent",
                      "expected the backbone's hidden_size (" + std::to_string(c.backbone.hidden_size) + ")");
  else if (c.patch_size != c.backbone.patch_size)
    reader.fail_found("patch_size", "inconsistent",
                      "expected the backbone's (" + std::to_string(c.backbone.patch_size) + ")");
  else if (static_cast<std::int64_t>(c.backbone.out_indices.size()) != stages)
    reader.fail_found(
        "neck_hidden_sizes", "inconsistent",
        "expected as many as the backbone has out_indices, " + std::to_string(c.backbone.out_indices.size()));
  else if (c.head_in_index < -stages || c.head_in_index >= stages)
    reader.fail_found("head_in_index", "inconsistent",
                      "expected the index of one of " + std::to_string(stages) + " images");
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_depth_anything(context, config.as<DepthAnythingConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<DepthAnythingConfig>();
  ModelTraits t = vit_traits(c.backbone);
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers has no flash attention for " + t.class_name + ": expected sdpa or eager");
  t.image_size = 0;         // any
  t.has_idle_parts = true;  // the first fusion layer's residual unit
  t.convolutions += c.neck.convolutions() + 3;
  t.tower = "backbone";
  t.losses = {"predicted_depth"};
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<DepthAnythingConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1),
                     rows = std::max<std::int64_t>(data.image_height / c.patch_size, 1),
                     columns = std::max<std::int64_t>(data.image_width / c.patch_size, 1),
                     channels = std::max(c.neck.fusion_hidden_size, c.head_hidden_size);
  return std::max({largest_tensor_of_vit(c.backbone, data), largest_tensor_of_neck(c.neck, images, rows, columns),
                   bytes_of({std::max<std::int64_t>(images, 9), channels, data.image_height, data.image_width})});
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<DepthAnythingConfig>();
  const auto size = read_image_size(reader, data, {c.backbone.image_size, c.backbone.image_size});
  if (!size) return;
  std::tie(data.image_height, data.image_width) = *size;
  if (std::min(size->first, size->second) < c.patch_size)
    reader.fail_found("image_size", "inconsistent",
                      "expected at least a patch (" + std::to_string(c.patch_size) + " pixels) each way");
}

}  // namespace

namespace family {
extern const Family depth_anything{.classes = kClasses,
                                   .blocks = kBlocks,
                                   .read = read,
                                   .build = build,
                                   .traits = traits,
                                   .largest_tensor = largest_tensor,
                                   .read_images = read_images};
}  // namespace family

}  // namespace oometer
