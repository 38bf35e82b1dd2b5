#include "models/family.h"

#include <algorithm>

#include "models/idefics3/idefics3.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr const Idefics3Family* kNamed[] = {&kIdefics3, &kSmolVlm, &kIdefics2};  ///< as kClasses
constexpr ModelClass kClasses[] = {{kIdefics3.model_type, kIdefics3.conditional_generation},
                                   {kSmolVlm.model_type, kSmolVlm.conditional_generation},
                                   {kIdefics2.model_type, kIdefics2.conditional_generation}};
constexpr const char* kBlocks[] = {kIdefics3.vision.attention, kIdefics3.vision.encoder_layer,
                                   kSmolVlm.vision.attention, kSmolVlm.vision.encoder_layer,
                                   kIdefics2.vision.encoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  return read_idefics3_config(reader, *kNamed[&of - kClasses]);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_idefics3(context, config.as<Idefics3Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Idefics3Config>();
  ModelTraits t = vision_language_traits(c.family->conditional_generation, c);
  t.set_parts("vision_model", "connector", "text_model");
  t.cuts_images = true;
  t.chooses_tiles = !c.family->has_perceiver;
  if (t.chooses_tiles) t.image_keys.insert(t.image_keys.end(), {"image_sizes", "tiles"});
  t.oldest_transformers = {5, c.family->has_perceiver ? 23 : 0, 0};
  const std::int64_t tokens = c.tiles(t.image_size, t.image_size) * c.tokens_per_tile();
  t.default_sequence_length = std::max(t.default_sequence_length, tokens);
  // The class's list names a part of the tower's blocks.
  t.no_split_modules.back() = c.vision.family->attention;
  t.casts_by_first_parameter = true;
  t.allow({Feature::quantization, Feature::packing});
  if (c.family == &kSmolVlm) t.leave_liger_out();
  if (c.family->has_perceiver)
    for (const Feature feature : {Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
      t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Idefics3Config>();
  const std::int64_t tiles = std::max<std::int64_t>(data.all_tiles(), 1), patches = c.patches_per_tile(data),
                     wide = c.vision.hidden_size * c.scale_factor * c.scale_factor;
  const auto [height, width] = c.pixels(data);
  const std::int64_t latents = c.family->has_perceiver ? c.perceiver.n_latents : 0;
  return std::max(
      {largest_tensor_of(c, data), bytes_of({c.text.hidden_size, wide}),
       bytes_of_layer(tiles, patches, c.vision.hidden_size, c.vision.intermediate_size, c.vision.num_attention_heads),
       bytes_of({tiles, c.vision.num_channels, height, width}),
       bytes_of(
           {tiles, patches + latents, latents == 0 ? 1 : std::max(c.text.intermediate_size, 4 * c.text.hidden_size)}),
       bytes_of({tiles, c.tokens_per_tile(), std::max(c.text.hidden_size, wide)})});
}

}  // namespace

namespace family {
extern const Family idefics3{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .count_image = count_tiles<Idefics3Config>};
}  // namespace family

}  // namespace oometer
