#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/deformable_detr/deformable_detr.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"deformable_detr", "DeformableDetrForObjectDetection"}};
constexpr const char* kBlocks[] = {kDeformableDetr.conv_encoder, kDeformableDetr.encoder_layer,
                                   kDeformableDetr.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  DeformableDetrConfig c;
  static_cast<DetrConfig&>(c) = read_detr(reader, of, true, kDeformableDetr, 1024);
  c.num_feature_levels = reader.integer("num_feature_levels", c.num_feature_levels, {1, 16});
  c.encoder_n_points = reader.integer("encoder_n_points", c.encoder_n_points, {1, 64});
  c.decoder_n_points = reader.integer("decoder_n_points", c.decoder_n_points, {1, 64});
  if (c.timm && !reader.has("backbone_config"))
    c.features = c.num_feature_levels > 1 ? std::vector<std::size_t>{2, 3, 4} : std::vector<std::size_t>{4};
  for (const char* key : {"with_box_refine", "two_stage"})
    if (reader.boolean(key, false)) reader.fail_found(key, "not-modelled", "this is not supported yet: expected false");
  if (!reader.boolean("tie_word_embeddings", true))
    reader.fail_found("tie_word_embeddings", "not-modelled",
                      "layers with heads of their own are not supported yet: expected true");
  if (reader.ok() && static_cast<std::int64_t>(c.features.size()) > c.num_feature_levels)
    reader.fail_found("num_feature_levels", "inconsistent",
                      "expected at least as many as the backbone hands on, " + std::to_string(c.features.size()));
  if (c.d_model % 32 != 0)
    reader.fail_found("d_model", "inconsistent", "expected a multiple of 32, for nn.GroupNorm(32, d_model)");
  reader.ignore({"two_stage_num_proposals", "return_intermediate", "disable_custom_kernels"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_deformable_detr(context, config.as<DeformableDetrConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<DeformableDetrConfig>();
  ModelTraits t = detr_traits(c);
  t.convolutions += c.num_feature_levels - 1;
  t.refuse(Feature::adapters, "inconsistent",
           "peft asks models that tie weights for embeddings, which " + t.class_name +
               " does not have (a NotImplementedError): expected no adapters");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<DeformableDetrConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1);
  std::int64_t height = data.image_height, width = data.image_width;
  for (std::size_t i = 0; i < c.features.front() + 1; ++i) {
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  }
  const std::int64_t places = 2 * checked_product(std::max<std::int64_t>(height, 1), std::max<std::int64_t>(width, 1));
  return std::max({largest_tensor_of_detr(c, data), bytes_of({images, places, std::max(c.d_model, c.encoder_ffn_dim)}),
                   bytes_of({images, places, c.d_model, c.num_feature_levels * c.encoder_n_points}),
                   bytes_of({c.d_model, c.d_model, 9})});
}

void read_images(ConfigReader& reader, const FamilyConfig&, DataConfig& data) {
  read_detection_images(reader, true, kUsualImage, data);
}

}  // namespace

namespace family {
extern const Family deformable_detr{.classes = kClasses,
                                    .blocks = kBlocks,
                                    .read = read,
                                    .build = build,
                                    .traits = traits,
                                    .largest_tensor = largest_tensor,
                                    .read_images = read_images};
}  // namespace family

}  // namespace oometer
