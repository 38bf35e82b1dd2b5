#include "models/family.h"

#include <algorithm>

#include "models/llama/family.h"
#include "models/mllama/mllama.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"mllama", "MllamaForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"MllamaVisionEncoderLayer", "MllamaCrossAttentionDecoderLayer",
                                   "MllamaSelfAttentionDecoderLayer"};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_mllama_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_mllama(context, config.as<MllamaConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<MllamaConfig>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c.text, false);
  t.set_parts("vision_model", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.image_size = c.vision.image_size;
  t.cuts_images = true;
  t.min_images = 1;
  t.images_why = "samples of text alone skip the layers that see images, which is not supported yet";
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {kBlocks, kBlocks + std::size(kBlocks)};
  t.refuse(Feature::inference, "not-modelled",
           "the cache of image states of " + t.class_name + " is not supported yet: expected train");
  t.refuse(Feature::flash_attention_2, "inconsistent",
           t.class_name + " has no flash attention: expected eager or sdpa");
  for (const Feature feature : {Feature::zero3, Feature::fsdp})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.leave_liger_out();
  return t;
}

/// Whatever its size, an image is padded to as many tiles as one may have (MllamaImageProcessor), and one token of the
/// text.
ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {config.as<MllamaConfig>().vision.max_num_tiles, 1};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<MllamaConfig>();
  const MllamaVisionConfig& v = c.vision;
  const std::int64_t images = data.images(), patches = v.max_num_tiles * v.padded_patches();
  const std::int64_t seen = data.images_per_sample * patches;
  return std::max({largest_tensor_of(c.text, data),
                   bytes_of_layer(images, patches, v.hidden_size, v.intermediate_size, v.attention_heads),
                   bytes_of({images, patches, std::max(v.output_dim(), c.text.hidden_size)}),
                   bytes_of({data.micro_batch_size, data.sequence_length, 2 * seen}),
                   bytes_of({data.micro_batch_size * c.text.num_attention_heads, data.sequence_length, seen}),
                   bytes_of({images * v.max_num_tiles, v.num_channels, v.image_size, v.image_size}),
                   bytes_of({v.max_aspect_ratio_id + 1, patches, v.hidden_size}),
                   bytes_of({v.output_dim(), c.text.hidden_size}),
                   bytes_of({c.text.vocab_size + 8, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family mllama{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .count_image = count_image};
}  // namespace family

}  // namespace oometer
