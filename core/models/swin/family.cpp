#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/sizes.h"
#include "models/swin/swin.h"

namespace oometer {

void read_swin_sizes(ConfigReader& reader, const ModelClass& of, SwinConfig& c) {
  constexpr std::size_t most_stages = 8;
  c.patch_size = 4;
  read_image_fields(reader, of, c);
  c.embed_dim = reader.integer("embed_dim", c.embed_dim);
  if (const auto depths = reader.integers("depths", {1, 1024}); !depths.empty()) c.depths = depths;
  if (const auto heads = reader.integers("num_heads", {1, 65'536}); !heads.empty()) c.num_heads = heads;
  c.window_size = reader.integer("window_size", c.window_size, {1, 1024});
  c.mlp_ratio = reader.number("mlp_ratio", c.mlp_ratio, 0.01, 1024);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  c.drop_path_rate = reader.number("drop_path_rate", c.drop_path_rate, 0, 1);
  c.use_absolute_embeddings = reader.boolean("use_absolute_embeddings", false);
  reader.ignore(
      {"encoder_stride", "num_layers", "hidden_size", "out_features", "out_indices", "stage_names", "path_norm"});
  if (c.depths.size() > most_stages)
    reader.fail_found("depths", "not-modelled", "expected at most " + std::to_string(most_stages) + " stages");
  if (!reader.ok()) return;
  if (c.num_heads.size() < c.depths.size())
    reader.fail_found("num_heads", "inconsistent",
                      "expected one a stage, of which depths has " + std::to_string(c.depths.size()));
  if (!reader.ok()) return;
  for (std::size_t stage = 0; stage < c.depths.size(); ++stage)
    if (c.dim(stage) % c.num_heads[stage] != 0)
      reader.fail_found("num_heads", "inconsistent",
                        "expected divisors of the channels of their stages: " + std::to_string(c.dim(stage)) +
                            " cannot be shared among " + std::to_string(c.num_heads[stage]));
  c.hidden_size = c.dim(c.depths.size() - 1);
}

double largest_tensor_of_swin(const SwinConfig& c, std::int64_t images, std::int64_t height, std::int64_t width) {
  PatchGrid grid{std::max<std::int64_t>(height / c.patch_size, 1), std::max<std::int64_t>(width / c.patch_size, 1)};
  const std::int64_t area = c.window_size * c.window_size;
  double largest = std::max({bytes_of({images, c.num_channels, height, width}),
                             bytes_of({c.embed_dim, c.num_channels, c.patch_size, c.patch_size}),
                             bytes_of({c.hidden_size, std::max<std::int64_t>(c.num_labels, 4 * c.hidden_size)}),
                             bytes_of({images, grid.patches(), c.embed_dim})});
  for (std::size_t stage = 0; stage < c.depths.size(); ++stage) {
    const std::int64_t patches = grid.in_windows(c.window_size).patches();
    largest = std::max({largest, c.mlp_ratio * bytes_of({images, grid.patches(), c.dim(stage)}),
                        bytes_of({images, patches, area, c.num_heads[stage]}),
                        c.mlp_ratio * bytes_of({c.dim(stage), c.dim(stage)}), 2 * bytes_of({2 * area, area, 2})});
    grid = grid.merged();
  }
  return largest;
}

double largest_tensor_of_swin(const SwinConfig& c, const DataConfig& data) {
  return largest_tensor_of_swin(c, std::max<std::int64_t>(data.images(), 1), c.image_size, c.image_size);
}

namespace {

constexpr ModelClass kClasses[] = {{"swin", "SwinForImageClassification"}, {"swin", "SwinModel"}};
constexpr const char* kBlocks[] = {"SwinStage", kSwin.layer};

void check(ConfigReader& reader, const SwinConfig& c) {
  // The smallest that all stages' windows fill: those of the last, and each stage before has twice as many each way.
  const std::int64_t unit = checked_product(c.patch_size, c.window_size << (c.depths.size() - 1));
  if (c.image_size % unit != 0)
    reader.fail_found("image_size", "not-modelled",
                      "images whose windows are filled up are not supported yet: expected a multiple of " +
                          std::to_string(unit) + ", as " +
                          std::to_string(std::max<std::int64_t>(c.image_size / unit, 1) * unit));
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  SwinConfig c;
  c.names = &kSwin;
  read_swin_sizes(reader, of, c);
  if (reader.ok()) check(reader, c);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_swin(context, config.as<SwinConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<SwinConfig>();
  ModelTraits t = vit_traits(c);
  t.no_split_modules = {"SwinStage"};
  t.refuse(
      Feature::flash_attention, "inconsistent",
      "PyTorch's flash attention takes no bias, which Swin's positions are: expected eager, sdpa or another kernel");
  t.refuse(Feature::flash_attention_2, "inconsistent",
           "transformers has no flash attention for Swin, whose positions are a bias: expected eager or sdpa");
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  t.refuse(Feature::checkpointing, "not-modelled",
           "a checkpoint of each stage with one of each of its layers in it is not supported yet: expected none");
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  return largest_tensor_of_swin(config.as<SwinConfig>(), data);
}

}  // namespace

namespace family {
extern const Family swin{.classes = kClasses,
                         .blocks = kBlocks,
                         .read = read,
                         .build = build,
                         .traits = traits,
                         .largest_tensor = largest_tensor};
}  // namespace family

}  // namespace oometer
