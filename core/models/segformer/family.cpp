#include "models/family.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "config/reader.h"
#include "models/kit/image_size.h"
#include "models/segformer/segformer.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"segformer", "SegformerForSemanticSegmentation"},
                                   {"segformer", "SegformerForImageClassification"},
                                   {"segformer", "SegformerModel"}};
constexpr const char* kBlocks[] = {"SegformerStage", kSegformer.layer};
constexpr std::size_t kMostStages = 8;
constexpr std::int64_t kUsualSide = 512;  ///< SegformerImageProcessor's size

void read_stages(ConfigReader& reader, SegformerConfig& c) {
  const auto stages = static_cast<std::size_t>(reader.integer("num_encoder_blocks", 4));
  if (stages > kMostStages)
    return reader.fail_found("num_encoder_blocks", "not-modelled", "expected at most " + std::to_string(kMostStages));
  const auto read = [&](const char* key, std::vector<std::int64_t>& of_stages, std::int64_t most) {
    if (const auto given = reader.integers(key, {1, most}); !given.empty()) of_stages = given;
    if (of_stages.size() != stages)
      reader.fail_found(key, "inconsistent",
                        "expected one a stage, of which there are " + std::to_string(stages) + " (num_encoder_blocks)");
  };
  read("depths", c.depths, 1024);
  read("sr_ratios", c.sr_ratios, 1024);
  read("hidden_sizes", c.hidden_sizes, 1 << 20);
  read("patch_sizes", c.patch_sizes, 1024);
  read("strides", c.strides, 1024);
  read("num_attention_heads", c.num_heads, 65'536);
  read("mlp_ratios", c.mlp_ratios, 1024);
  if (!reader.ok()) return;
  c.hidden_size = c.hidden_sizes.back();
  for (std::size_t i = 0; i < stages; ++i)
    if (c.hidden_sizes[i] % c.num_heads[i] != 0)
      reader.fail_found("num_attention_heads", "inconsistent",
                        "expected divisors of hidden_sizes: " + std::to_string(c.hidden_sizes[i]) +
                            " cannot be shared among " + std::to_string(c.num_heads[i]));
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  SegformerConfig c;
  c.names = &kSegformer;
  c.patch_size = 1;
  read_image_fields(reader, of, c);
  c.segments = &of == &kClasses[0];
  read_stages(reader, c);
  c.drop_path_rate = reader.number("drop_path_rate", c.drop_path_rate, 0, 1);
  c.classifier_dropout_prob = reader.number("classifier_dropout_prob", c.classifier_dropout_prob, 0, 1);
  c.decoder_hidden_size = reader.integer("decoder_hidden_size", c.decoder_hidden_size);
  if (c.segments && c.num_labels == 1)
    reader.fail_found("num_labels", "not-modelled",
                      "a mask of one label is not supported yet: expected two labels or more");
  if (!reader.boolean("reshape_last_stage", true))
    reader.fail_found("reshape_last_stage", "not-modelled", "this is not supported yet: expected true");
  reader.ignore({"semantic_loss_ignore_index", "image_size", "patch_size", "downsampling_rates"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_segformer(context, config.as<SegformerConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<SegformerConfig>();
  ModelTraits t = vit_traits(c);
  t.no_split_modules = {"SegformerStage"};
  t.image_size = 0;  // any
  t.convolutions = static_cast<std::int64_t>(c.depths.size()) + c.layers() + (c.segments ? 2 : 0);
  for (std::size_t i = 0; i < c.depths.size(); ++i) t.convolutions += c.sr_ratios[i] > 1 ? c.depths[i] : 0;
  if (c.segments) {
    t.has_loss = true;
    t.losses = {};
    t.tower = c.names->base;
  } else if (!c.classifies) {
    t.losses = {"last_hidden_state"};
  }
  t.refuse(Feature::fsdp, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<SegformerConfig>();
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1);
  std::int64_t height = data.image_height, width = data.image_width;
  const std::int64_t stages = static_cast<std::int64_t>(c.depths.size());
  double largest = std::max(bytes_of({images, std::max(c.num_channels, c.segments ? c.num_labels : 1), height, width}),
                            bytes_of({c.decoder_hidden_size, c.decoder_hidden_size * stages}));
  for (std::size_t i = 0; i < c.depths.size(); ++i) {
    height = c.side(i, height);
    width = c.side(i, width);
    const std::int64_t before = i == 0 ? c.num_channels : c.hidden_sizes[i - 1],
                       tokens = checked_product(height, width), ratio = c.sr_ratios[i];
    largest = std::max({largest, bytes_of({images, tokens, c.hidden_sizes[i], c.mlp_ratios[i]}),
                        bytes_of({images, tokens, tokens / (ratio * ratio) + 1, c.num_heads[i]}),
                        bytes_of({tokens, before, c.patch_sizes[i], c.patch_sizes[i]}),
                        bytes_of({c.hidden_sizes[i], before, c.patch_sizes[i], c.patch_sizes[i]}),
                        bytes_of({c.hidden_sizes[i], c.hidden_sizes[i], ratio, ratio}),
                        bytes_of({c.hidden_sizes[i], c.hidden_sizes[i], c.mlp_ratios[i]})});
    if (i == 0 && c.segments) largest = std::max(largest, bytes_of({images, c.decoder_hidden_size * stages, tokens}));
  }
  return largest;
}

/// Whether no kernel is larger than what is left of an image of such a side.
bool fits(const SegformerConfig& c, std::int64_t side) {
  for (std::size_t i = 0; i < c.depths.size(); ++i) {
    if (side + 2 * (c.patch_sizes[i] / 2) < c.patch_sizes[i]) return false;
    side = c.side(i, side);
    if (side < c.sr_ratios[i]) return false;
  }
  return true;
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<SegformerConfig>();
  const auto size = read_image_size(reader, data, {kUsualSide, kUsualSide});
  if (!size) return;
  std::tie(data.image_height, data.image_width) = *size;
  if (fits(c, std::min(size->first, size->second))) return;
  std::int64_t least = std::min(size->first, size->second);
  while (!fits(c, least)) ++least;
  reader.fail_found(
      "image_size", "inconsistent",
      "expected at least " + std::to_string(least) + " pixels each way, as its last stages' convolutions need them");
}

}  // namespace

namespace family {
extern const Family segformer{.classes = kClasses,
                              .blocks = kBlocks,
                              .read = read,
                              .build = build,
                              .traits = traits,
                              .largest_tensor = largest_tensor,
                              .read_images = read_images};
}  // namespace family

}  // namespace oometer
