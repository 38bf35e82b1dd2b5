#include "models/family.h"

#include <algorithm>

#include "models/nanovlm/nanovlm.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"nanovlm", "VisionLanguageModel"}};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_nanovlm_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_nanovlm(context, config.as<NanoVlmConfig>(), data, options);
}

/// Not a class of transformers: what acts on those does not know it.
ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<NanoVlmConfig>();
  ModelTraits t;
  t.class_name = kClasses[0].class_name;
  t.why_not = "nanoVLM's own code does not have it: leave it out";
  t.takes_text = t.takes_images = t.generates = true;
  t.allow({Feature::transformers, Feature::training, Feature::inference, Feature::no_grad, Feature::sdpa,
           Feature::flash_attention});
  t.refuse(Feature::generate_options, "inconsistent",
           t.class_name + "'s own generate() has no choice of it: leave it out");
  for (const Feature sharding : {Feature::deepspeed, Feature::fsdp})
    t.refuse(sharding, "not-modelled", t.class_name + " is not supported under it yet; expected none or ddp");
  t.set_parts("vision_encoder", "MP", "decoder");
  t.ties_embeddings = c.tie_word_embeddings;
  t.min_images = t.max_images = 1;
  t.images_why = "nanoVLM takes an image with each text";
  t.image_keys = {"image_size"};
  t.image_size = c.vision.image_size;
  t.convolutions = 1;
  t.default_sequence_length = std::max(c.max_length, c.tokens_per_image());
  t.text.max_position_embeddings = c.text.max_position_embeddings;
  t.precisions = {Precision::amp_bf16, Precision::amp_fp16, Precision::fp32};  // the first in its train.py
  t.inference_precisions = {Precision::fp32};
  t.precisions_why = "nanoVLM's rotary embeddings stay in float32, and attention takes one type";
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<NanoVlmConfig>().tokens_per_image()};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<NanoVlmConfig>();
  const std::int64_t wide = c.vision.hidden_size * c.scale_factor * c.scale_factor;
  return std::max({largest_tensor_of(c, data), bytes_of({c.text.hidden_size, wide}),
                   bytes_of({data.images(), c.tokens_per_image(), std::max(c.text.hidden_size, wide)})});
}

}  // namespace

namespace family {
extern const Family nanovlm{.classes = kClasses,
                            .read = read,
                            .build = build,
                            .traits = traits,
                            .largest_tensor = largest_tensor,
                            .count_image = count_image};
}  // namespace family

}  // namespace oometer
