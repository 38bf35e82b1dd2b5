#include "models/family.h"

#include <algorithm>

#include "models/gemma3/gemma3.h"
#include "models/llama/family.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"gemma3", "Gemma3ForConditionalGeneration"},
                                   {"gemma3", "Gemma3ForSequenceClassification"}};

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  Gemma3Config c = read_gemma3_config(reader);
  c.classifier = read_classifier(reader, of);
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_gemma3(context, config.as<Gemma3Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Gemma3Config>();
  ModelTraits t = vision_language_traits("Gemma3ForConditionalGeneration", c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.image_size = c.vision.image_size;
  t.cuts_images = true;  // the processor makes a square of any
  t.oldest_transformers = {5, 23, 0};
  // Gemma3PreTrainedModel._no_split_modules
  t.no_split_modules = {"Gemma3DecoderLayer", "SiglipVisionEmbeddings", "SiglipEncoderLayer",
                        "SiglipMultiheadAttentionPoolingHead"};
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp, Feature::image_preferences, Feature::liger,
           Feature::packing});
  t.liger.usual.layer_norm = true;
  t.liger.lacks.layer_norm = false;
  t.liger.swiglu = c.text.hidden_act == Activation::gelu_tanh;  // LigerGEGLUMLP
  t.liger.ignores.cross_entropy = true;  // it replaces nn.CrossEntropyLoss, and the class's loss is the function
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (c.text.softcaps_attention)
    t.refuse(Feature::sdpa, "inconsistent", "attn_logit_softcapping is set, which SDPA cannot do: expected eager");
  if (!c.classifier) return t;
  t.class_name = c.classifier.class_name;
  t.classifies = true;
  t.labels = c.classifier.num_labels;
  t.generates = t.ties_embeddings = false;
  for (const Feature feature :
       {Feature::inference, Feature::packing, Feature::liger, Feature::quantization, Feature::zero3, Feature::fsdp,
        Feature::chunked_cross_entropy, Feature::image_preferences})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

/// Without pan and scan, which the published processors leave off, an image of any size takes as many tokens.
ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<Gemma3Config>().mm_tokens_per_image};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Gemma3Config>();
  const ClipVisionConfig& v = c.vision;
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1);
  return std::max({largest_tensor_of(c.text, data), bytes_of({c.vision.hidden_size, c.text.hidden_size}),
                   bytes_of({data.micro_batch_size, data.sequence_length, data.sequence_length}),
                   bytes_of_layer(images, v.num_patches(), v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({images, v.num_channels, v.image_size, v.image_size}),
                   bytes_of({images, c.mm_tokens_per_image, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family gemma3{.classes = kClasses,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .count_image = count_image};
}  // namespace family

}  // namespace oometer
