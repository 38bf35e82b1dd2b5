#include "models/family.h"

#include <algorithm>

#include "models/llava/llava.h"
#include "models/siglip/config.h"
#include "models/sizes.h"

namespace oometer {

namespace {

/// The original code's own class; its config.json says model_type llava or llava_llama.
constexpr const char* kOriginal = "LlavaLlamaForCausalLM";
constexpr ModelClass kClasses[] = {{kLlava.model_type, kLlava.class_name},
                                   {kLlavaNext.model_type, kLlavaNext.class_name},
                                   {"llava", kOriginal},
                                   {"llava_llama", kOriginal}};
constexpr const char* kBlocks[] = {kClipVision.encoder_layer, kSiglipVision.encoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework framework) {
  return &of == &kClasses[1] ? read_llava_next_config(reader) : read_llava_config(reader, framework);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_llava(context, config.as<LlavaConfig>(), data, options);
}

/// LLaVA-1.5: whose Liger kernels were compared with the library's own.
void add_traits_of_1_5(const LlavaConfig& c, ModelTraits& t) {
  t.allow({Feature::liger, Feature::original_llava});
  t.liger.note =
      "Liger's switches are given to apply_liger_kernel_to_llava itself: of a Trainer's liger_kernel_config only the "
      "two of the loss reach a LLaVA model";
  t.original_projector = "mm_projector";
  if (c.original_code) t.set_parts("vision_tower", t.original_projector, "model");
  if (c.original_format)
    t.refuse(Feature::transformers, "inconsistent",
             "a config.json of the original LLaVA code; expected {\"framework\": \"llava\"}");
}

[[gnu::noinline]] void refuse_shards_of_head(ModelTraits& t) {
  for (const Feature sharding : {Feature::zero3, Feature::fsdp})
    t.refuse(sharding, "not-modelled",
             "SigLIP's head on shards is not supported yet; expected another strategy, or a vision_config with "
             "\"vision_use_head\": false, as the model needs no head");
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<LlavaConfig>();
  ModelTraits t = vision_language_traits(c.of->class_name, c);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.allow({Feature::quantization, Feature::image_preferences, Feature::packing});
  if (!c.is_next()) t.leave_liger_out();  // of LLaVA-1.5 alone they were compared
  std::int64_t tokens = c.tokens_per_image();
  if (c.is_next()) {
    t.cuts_images = true;
    t.image_keys.insert(t.image_keys.end(), {"image_sizes", "tiles"});
    tokens = c.anyres(c.vision.image_size, c.vision.image_size).tokens;
  }
  t.default_sequence_length = std::max(t.default_sequence_length, tokens);
  if (c.is_next() || c.has_siglip())
    t.oldest_transformers = {5, 0, 0};
  else
    add_traits_of_1_5(c, t);
  if (c.vision.has_head) refuse_shards_of_head(t);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t) {
  const auto& c = config.as<LlavaConfig>();
  if (!c.is_next()) return {1, c.tokens_per_image()};
  const LlavaConfig::Anyres anyres = c.anyres(height, width);
  return {anyres.tiles(), anyres.tokens};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<LlavaConfig>();
  const std::int64_t widest = std::max(c.projector_input_size(), c.text.hidden_size);
  return std::max({largest_tensor_of(c, data), bytes_of({c.text.hidden_size, widest}),
                   bytes_of({data.all_tiles(), c.vision.num_positions(), widest})});
}

}  // namespace

namespace family {
extern const Family llava{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor,
                          .count_image = count_image};
}  // namespace family

}  // namespace oometer
