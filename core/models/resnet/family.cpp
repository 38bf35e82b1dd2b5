#include "models/family.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "config/reader.h"
#include "models/kit/image_size.h"
#include "models/resnet/resnet.h"
#include "models/sizes.h"

namespace oometer {

std::int64_t ResNetConfig::convolutions() const {
  std::int64_t count = 1;
  for (std::size_t i = 0; i < depths.size(); ++i) count += depths[i] * (is_basic ? 2 : 3) + 1;
  return count;
}

void read_resnet_sizes(ConfigReader& reader, ResNetConfig& c) {
  constexpr std::size_t kMostStages = 8;
  c.embedding_size = reader.integer("embedding_size", c.embedding_size, {1, 1 << 16});
  if (const auto sizes = reader.integers("hidden_sizes", {1, 1 << 16}); !sizes.empty()) c.hidden_sizes = sizes;
  if (const auto depths = reader.integers("depths", {1, 1024}); !depths.empty()) c.depths = depths;
  const std::string type = reader.text("layer_type", "bottleneck");
  c.is_basic = type == "basic";
  if (!c.is_basic && type != "bottleneck")
    reader.fail_found("layer_type", "inconsistent", "expected basic or bottleneck");
  c.downsample_in_first_stage = reader.boolean("downsample_in_first_stage", false);
  c.downsample_in_bottleneck = reader.boolean("downsample_in_bottleneck", false);
  if (c.depths.size() > kMostStages)
    reader.fail_found("depths", "not-modelled", "expected at most " + std::to_string(kMostStages));
  else if (c.hidden_sizes.size() != c.depths.size())
    reader.fail_found("hidden_sizes", "inconsistent",
                      "expected one a stage, of which there are " + std::to_string(c.depths.size()) + " (depths)");
  else if (!c.is_basic && *std::min_element(c.hidden_sizes.begin(), c.hidden_sizes.end()) < 4)
    reader.fail_found("hidden_sizes", "inconsistent", "expected at least 4, a quarter of which a bottleneck keeps");
  else
    c.hidden_size = c.hidden_sizes.back();
  reader.ignore({"out_features", "out_indices", "stage_names"});
}

double largest_tensor_of_resnet(const ResNetConfig& c, std::int64_t images, std::int64_t height, std::int64_t width) {
  const auto halve = [&] {
    height = (height + 1) / 2;
    width = (width + 1) / 2;
  };
  double largest = bytes_of({images, c.num_channels, height, width});
  halve();
  largest = std::max(
      {largest, bytes_of({images, c.embedding_size, height, width}), bytes_of({c.num_channels * 49, height, width})});
  halve();
  std::int64_t before = c.embedding_size;
  for (std::size_t i = 0; i < c.hidden_sizes.size(); ++i) {
    const std::int64_t dim = std::max(c.hidden_sizes[i], before);
    // The first layer still sees the finer image; what a convolution unfolds has nine values for each.
    largest = std::max(
        {largest, bytes_of({images, dim, height, width}), bytes_of({dim, 9, height, width}), bytes_of({dim, dim, 9})});
    if (i > 0 || c.downsample_in_first_stage) halve();
    before = c.hidden_sizes[i];
  }
  return largest;
}

namespace {

constexpr ModelClass kClasses[] = {{"resnet", "ResNetForImageClassification"}, {"resnet", "ResNetModel"}};
constexpr const char* kBlocks[] = {"ResNetConvLayer", "ResNetShortCut"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  ResNetConfig c;
  c.patch_size = 1;
  c.hidden_act = Activation::relu;
  read_image_fields(reader, of, c);
  read_resnet_sizes(reader, c);
  reader.ignore({"image_size", "patch_size", "hidden_dropout_prob", "attention_probs_dropout_prob"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_resnet(context, config.as<ResNetConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<ResNetConfig>();
  ModelTraits t = vit_traits(c);
  if (c.classifies) t.tower = "resnet";
  t.no_split_modules = {kBlocks[0], kBlocks[1]};
  t.image_size = 0;  // any
  t.convolutions = c.convolutions();
  t.refuse(Feature::flash_attention_2, "inconsistent", t.class_name + " has no attention: leave it out");
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::checkpointing, "inconsistent",
           t.class_name + " has no gradient checkpointing in transformers (a ValueError): expected none");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<ResNetConfig>();
  return std::max(
      largest_tensor_of_resnet(c, std::max<std::int64_t>(data.images(), 1), data.image_height, data.image_width),
      bytes_of({c.hidden_size, c.num_labels}));
}

void read_images(ConfigReader& reader, const FamilyConfig&, DataConfig& data) {
  if (const auto size = read_image_size(reader, data, {224, 224}))
    std::tie(data.image_height, data.image_width) = *size;
}

}  // namespace

namespace family {
extern const Family resnet{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .read_images = read_images};
}  // namespace family

}  // namespace oometer
