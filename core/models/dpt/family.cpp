#include "models/family.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "config/reader.h"
#include "models/dpt/dpt.h"
#include "models/kit/image_size.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {
    {"dpt", "DPTForDepthEstimation"}, {"dpt", "DPTForSemanticSegmentation"}, {"dpt", "DPTModel"}};
constexpr const char* kBlocks[] = {kDpt.layer, kDinov2.layer};

void check(ConfigReader& reader, const DptConfig& c) {
  if (c.head == DptConfig::Head::none) return;
  const auto stages = static_cast<std::int64_t>(c.neck.stages());
  std::int64_t used = c.has_backbone ? static_cast<std::int64_t>(c.backbone.out_indices.size()) : 0;
  for (std::int64_t i = 0; i < c.num_hidden_layers && !c.has_backbone; ++i)
    used += std::count(c.backbone_out_indices.begin(), c.backbone_out_indices.end(), i) > 0 ? 1 : 0;
  if (used != stages)
    return reader.fail_found(
        c.has_backbone ? "neck_hidden_sizes" : "backbone_out_indices", "inconsistent",
        c.has_backbone ? "expected as many as backbone_config has out_indices, " + std::to_string(used)
                       : "expected as many layers of num_hidden_layers (" + std::to_string(c.num_hidden_layers) +
                             ") as neck_hidden_sizes has, " + std::to_string(stages));
  if (c.head_in_index < -stages || c.head_in_index >= stages)
    return reader.fail_found("head_in_index", "inconsistent",
                             "expected the index of one of " + std::to_string(stages) + " images");
  if (c.head == DptConfig::Head::depth && c.add_projection && c.neck.fusion_hidden_size != 256)
    return reader.fail_found("add_projection", "inconsistent",
                             "expected fusion_hidden_size 256, which the class's projection takes");
  if (c.head == DptConfig::Head::segmentation && c.num_labels == 1)
    reader.fail_found("num_labels", "inconsistent", "expected two labels or more");
}

void read_backbone(ConfigReader& reader, const ModelClass& of, DptConfig& c) {
  if (c.head != DptConfig::Head::depth)
    return reader.fail_found("backbone_config", "inconsistent",
                             std::string("expected null, as ") + of.class_name + " has a ViT of its own");
  ConfigReader backbone = reader.object("backbone_config");
  if (backbone.text("model_type", "bit") != "dinov2")
    return backbone.fail_found("model_type", "not-modelled", "another backbone is not supported yet: expected dinov2");
  c.has_backbone = true;
  read_dinov2_backbone(backbone, of, true, c.backbone);
  backbone.ignore({"architectures"});
  backbone.finish();
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DptConfig c;
  c.names = &kDpt;
  c.head = &of == &kClasses[0]   ? DptConfig::Head::depth
           : &of == &kClasses[1] ? DptConfig::Head::segmentation
                                 : DptConfig::Head::none;
  c.image_size = 384;
  if (reader.boolean("is_hybrid", false))
    reader.fail_found("is_hybrid", "not-modelled", "a backbone of convolutions is not supported yet: expected false");
  if (reader.has("backbone"))
    reader.fail_found("backbone", "not-modelled", "a backbone by name is not supported yet: expected backbone_config");
  if (reader.has("backbone_config")) read_backbone(reader, of, c);
  read_vit_sizes(reader, of, c);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.pooler_output_size = reader.integer("pooler_output_size", c.hidden_size);
  if (reader.text("pooler_act", "tanh") != "tanh")
    reader.fail_found("pooler_act", "not-modelled", "another activation is not supported yet: expected tanh");
  if (const auto given = reader.integers("backbone_out_indices", {0, 1 << 16}); !given.empty())
    c.backbone_out_indices = given;
  c.neck.names = &kDptNeck;
  c.neck.hidden_size = c.vit().hidden_size;
  c.neck.hidden_act = c.hidden_act;
  c.neck.neck_hidden_sizes = {96, 192, 384, 768};
  c.neck.reassemble_factors = {4, 2, 1, 0.5};
  read_dpt_neck(reader, c.neck);
  using Readout = DptNeckConfig::Readout;
  c.neck.readout =
      reader.choice<Readout>("readout_type", Readout::project,
                             {{"ignore", Readout::ignore}, {"add", Readout::add}, {"project", Readout::project}});
  c.neck.batch_norm = reader.boolean("use_batch_norm_in_fusion_residual", false);
  c.neck.bias = reader.has("use_bias_in_fusion_residual") ? reader.boolean("use_bias_in_fusion_residual", false)
                                                          : !c.neck.batch_norm;
  c.head_in_index = reader.integer("head_in_index", -1, {-1024, 1024});
  c.add_projection = reader.boolean("add_projection", false);
  c.semantic_classifier_dropout = reader.number("semantic_classifier_dropout", c.semantic_classifier_dropout, 0, 1);
  if (!reader.boolean("use_auxiliary_head", true) && c.head == DptConfig::Head::segmentation)
    reader.fail_found("use_auxiliary_head", "inconsistent", "expected true, without which the class has no loss");
  reader.ignore({"auxiliary_loss_weight", "semantic_loss_ignore_index", "backbone_featmap_shape", "neck_ignore_stages",
                 "use_pretrained_backbone", "use_timm_backbone", "backbone_kwargs"});
  if (reader.ok()) check(reader, c);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_dpt(context, config.as<DptConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<DptConfig>();
  ModelTraits t = vit_traits(c.vit());
  t.hidden_size = c.hidden_size;
  if (!c.has_backbone) {
    t.no_split_modules = {};
    t.refuse(Feature::fsdp, "not-modelled",
             "this is not supported yet with " + t.class_name + ", whose class names no blocks that FSDP would wrap");
  }
  t.image_size = 0;  // any
  if (c.head == DptConfig::Head::none) return t;
  t.has_idle_parts = true;  // the model's last norm, and the first fusion layer's residual unit
  t.convolutions += c.neck.convolutions() + (c.head == DptConfig::Head::depth ? 3 : 4) + (c.add_projection ? 1 : 0);
  t.tower = c.has_backbone ? "backbone" : c.names->base;
  t.losses = {};
  if (c.head == DptConfig::Head::depth)
    t.losses = {"predicted_depth"};
  else
    t.has_loss = true;
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<DptConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1),
                     rows = std::max<std::int64_t>(data.image_height / c.vit().patch_size, 1),
                     columns = std::max<std::int64_t>(data.image_width / c.vit().patch_size, 1);
  double largest = largest_tensor_of_vit(c.vit(), data);
  if (c.head == DptConfig::Head::none) return largest;
  // The finest image's side is twice that of the last stage; the heads stretch it to twice that.
  const std::size_t stages = c.neck.stages();
  std::int64_t factor = 2;
  for (std::size_t i = 0; i < stages; ++i) factor *= 2;
  const std::int64_t height = checked_product(c.neck.side(stages - 1, rows), factor),
                     width = checked_product(c.neck.side(stages - 1, columns), factor),
                     channels = std::max({c.neck.fusion_hidden_size, c.num_labels, std::int64_t{256}});
  largest = std::max({largest, largest_tensor_of_neck(c.neck, images, rows, columns),
                      bytes_of({images, channels, height, width}), bytes_of({channels, 9, height, width}),
                      bytes_of({images, c.num_labels, data.image_height, data.image_width})});
  return largest;
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<DptConfig>();
  const auto size = read_image_size(reader, data, {c.vit().image_size, c.vit().image_size});
  if (!size) return;
  std::tie(data.image_height, data.image_width) = *size;
  if (std::min(size->first, size->second) < c.vit().patch_size)
    reader.fail_found("image_size", "inconsistent",
                      "expected at least a patch (" + std::to_string(c.vit().patch_size) + " pixels) each way");
}

}  // namespace

namespace family {
extern const Family dpt{.classes = kClasses,
                        .blocks = kBlocks,
                        .read = read,
                        .build = build,
                        .traits = traits,
                        .largest_tensor = largest_tensor,
                        .read_images = read_images};
}  // namespace family

}  // namespace oometer
