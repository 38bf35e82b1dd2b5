#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/kit/image_size.h"
#include "models/llama/family.h"
#include "models/mistral3/mistral3.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{kMistral3.model_type, kMistral3.class_name},
                                   {kLightOnOcr.model_type, kLightOnOcr.class_name}};
constexpr const char* kBlocks[] = {"PixtralAttentionLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_mistral3_config(reader, &of == &kClasses[0] ? kMistral3 : kLightOnOcr);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_mistral3(context, config.as<Mistral3Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Mistral3Config>();
  ModelTraits t = vision_language_traits(c.of->class_name, c.text, c.tie_word_embeddings);
  t.set_parts(c.of->tower, c.of->projector, "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(kBlocks[0]);
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp, Feature::image_preferences, Feature::packing});
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Mistral3Config>();
  return std::max(largest_tensor_of(c.text, data), largest_tensor_of_pixtral(c, data));
}

}  // namespace

double largest_tensor_of_pixtral(const Mistral3Config& c, const DataConfig& data) {
  const PixtralVisionConfig& v = c.vision;
  const std::int64_t patches = checked_product(
      data.images(), (data.image_height / v.patch_size) * (data.image_width / v.patch_size));  // one sequence
  const std::int64_t merged = v.hidden_size * c.spatial_merge_size * c.spatial_merge_size;
  return std::max({bytes_of_layer(1, patches, v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({data.images(), v.num_channels, data.image_height, data.image_width}),
                   bytes_of({merged, v.hidden_size}),
                   bytes_of({c.text.hidden_size, std::max(c.text.hidden_size, v.hidden_size)})});
}

void read_pixtral_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<Mistral3Config>();
  const auto size = read_image_size(reader, data, {672, 448});
  if (!size) return;
  const auto [height, width] = *size;
  // processor_config.json of the published models: longest_edge is the tower's image_size
  const std::int64_t longest = std::max(height, width), shortest = std::min(height, width), edge = c.vision.image_size;
  if (longest > edge && shortest * edge < longest)  // the processor rounds the shorter side down, to nothing
    return reader.fail_found("image_size", "inconsistent",
                             "expected [height, width] in pixels, neither more than " + std::to_string(edge) +
                                 " times the other: the processor leaves nothing of a side");
  const auto [rows, columns] = pixtral_cells(height, width, c.vision.image_size, c.cell());
  data.image_height = rows * c.cell();
  data.image_width = columns * c.cell();
  data.tokens_per_image = rows * columns;
}

namespace family {
extern const Family mistral3{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .read_images = read_pixtral_images};
}  // namespace family

}  // namespace oometer
