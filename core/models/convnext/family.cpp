#include "models/family.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "config/reader.h"
#include "models/convnext/convnext.h"
#include "models/sizes.h"

namespace oometer {

void read_convnext_sizes(ConfigReader& reader, const ModelClass& of, ConvNextConfig& c) {
  c.is_v2 = std::string_view(of.model_type) == "convnextv2";
  c.classes = c.is_v2 ? &kConvNextV2 : &kConvNext;
  c.patch_size = 4;
  read_image_fields(reader, of, c);
  if (const auto sizes = reader.integers("hidden_sizes", {1, 1 << 20}); !sizes.empty()) c.hidden_sizes = sizes;
  if (const auto depths = reader.integers("depths", {1, 1024}); !depths.empty()) c.depths = depths;
  if (!c.is_v2) c.layer_scale_init_value = reader.number("layer_scale_init_value", c.layer_scale_init_value, 0, 1e6);
  c.drop_path_rate = reader.number("drop_path_rate", 0, 0, 1);
  const auto stages = static_cast<std::size_t>(reader.integer("num_stages", 4));
  constexpr std::size_t most_stages = 8;
  if (stages > most_stages) {
    reader.fail_found("num_stages", "not-modelled", "expected at most " + std::to_string(most_stages));
  } else if (c.hidden_sizes.size() != stages || c.depths.size() != stages) {
    reader.fail_found(c.depths.size() != stages ? "depths" : "hidden_sizes", "inconsistent",
                      "expected one a stage, of which there are " + std::to_string(stages) + " (num_stages)");
  } else {
    c.hidden_size = c.hidden_sizes.back();
  }
  reader.ignore({"layer_scale_init_value", "hidden_dropout_prob", "attention_probs_dropout_prob", "image_size",
                 "out_features", "out_indices", "stage_names"});
}

double largest_tensor_of_convnext(const ConvNextConfig& c, const DataConfig& data) {
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1);
  std::int64_t height = std::max(data.image_height, c.image_size) / c.patch_size,
               width = std::max(data.image_width, c.image_size) / c.patch_size;
  double largest = std::max(bytes_of({images, c.num_channels, height * c.patch_size, width * c.patch_size}),
                            bytes_of({c.hidden_size, c.num_labels}));
  for (const std::int64_t dim : c.hidden_sizes) {
    largest = std::max({largest, bytes_of({images, height, width, 4 * dim}), bytes_of({height, width, 4 * dim}),
                        bytes_of({dim, 4 * dim})});
    height /= 2;
    width /= 2;
  }
  return largest;
}

namespace {

constexpr ModelClass kClasses[] = {{"convnext", "ConvNextForImageClassification"},
                                   {"convnext", "ConvNextModel"},
                                   {"convnextv2", "ConvNextV2ForImageClassification"},
                                   {"convnextv2", "ConvNextV2Model"}};
constexpr const char* kBlocks[] = {kConvNext.stage, kConvNext.layer, kConvNextV2.stage, kConvNextV2.layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  ConvNextConfig c;
  read_convnext_sizes(reader, of, c);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_convnext(context, config.as<ConvNextConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<ConvNextConfig>();
  ModelTraits t = vit_traits(c);
  if (c.classifies) t.tower = c.classes->base;
  t.no_split_modules = {c.classes->layer, c.classes->stage};
  t.image_size = 0;  // any
  t.convolutions = static_cast<std::int64_t>(c.depths.size()) + c.layers();
  t.refuse(Feature::flash_attention_2, "inconsistent", t.class_name + " has no attention: leave it out");
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::checkpointing, "inconsistent",
           t.class_name + " has no gradient checkpointing in transformers (a ValueError): expected none");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_convnext(config.as<ConvNextConfig>(), data);
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<ConvNextConfig>();
  read_images_of_any_size(reader, c, data);
  if (reader.ok() && std::min(data.image_height, data.image_width) < c.smallest_image())
    reader.fail_found(
        "image_size", "inconsistent",
        "expected at least " + std::to_string(c.smallest_image()) + " pixels each way, of which its stages leave one");
}

}  // namespace

namespace family {
extern const Family convnext{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .read_images = read_images};
}  // namespace family

}  // namespace oometer
