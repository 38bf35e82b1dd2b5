#include "models/family.h"

#include <algorithm>

#include "models/llama4/llama4.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"llama4", kLlama4}};
constexpr const char* kBlocks[] = {kLlama4VisionLayer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_llama4_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_llama4(context, config.as<Llama4ImageConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Llama4ImageConfig>();
  ModelTraits t = vision_language_traits(kLlama4, c.text, c.text.tie_word_embeddings);
  allow_llama4_text(t);
  t.has_experts = c.text.experts.num_experts != 0;
  t.set_parts("vision_model", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes", "tiles"};
  t.image_size = c.vision.image_size;
  t.cuts_images = t.chooses_tiles = true;
  t.convolutions = 0;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(kBlocks[0]);
  t.allow({Feature::quantization});
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images,
                                Feature::chunked_cross_entropy, Feature::zero3, Feature::fsdp})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Llama4ImageConfig>();
  const Llama4VisionConfig& v = c.vision;
  const std::int64_t tiles = std::max<std::int64_t>(data.all_tiles(), 1), tokens = c.tokens_per_tile();
  return std::max(
      {largest_tensor_of_llama4_text(c.text, data),
       2 * bytes_of_layer(tiles, v.num_positions(), v.hidden_size, v.intermediate_size, v.num_attention_heads),
       bytes_of({tiles, v.num_positions(), v.patch_elements()}),
       bytes_of({tiles, tokens, std::max({v.intermediate_size, v.projector_input_dim, c.text.hidden_size})}),
       bytes_of({v.projector_input_dim, std::max(v.intermediate_size, v.projector_output_dim)}),
       bytes_of({v.vision_output_dim, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family llama4{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .count_image = count_tiles<Llama4ImageConfig>,
                           .convert_targets = refuse_llama4_router};
}  // namespace family

}  // namespace oometer
