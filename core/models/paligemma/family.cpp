#include "models/family.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/gemma/gemma.h"
#include "models/gemma2/gemma2.h"
#include "models/kit/recurrent.h"
#include "models/llama/family.h"
#include "models/paligemma/paligemma.h"
#include "models/siglip/config.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

PaliGemmaConfig read_paligemma_config(ConfigReader& reader) {
  PaliGemmaConfig c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_siglip_vision_config(vision);
  vision.ignore({"num_image_tokens", "projector_hidden_act", "projection_dim", "vocab_size"});
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.has_gemma2 = text.choice<bool>("model_type", false, {{"gemma", false}, {"gemma2", true}});
  c.text = c.has_gemma2 ? read_gemma2_config(text) : read_gemma_config(text);
  if (text.has("use_bidirectional_attention") && !text.boolean("use_bidirectional_attention", true))
    text.fail_found("use_bidirectional_attention", "not-modelled", "expected true, the class's own");
  text.ignore({"num_image_tokens"});
  text.finish();
  c.projection_dim = reader.integer("projection_dim", c.projection_dim);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  if (c.projection_dim != c.text.hidden_size)
    reader.fail_found("projection_dim", "inconsistent",
                      "expected the text's hidden_size (" + std::to_string(c.text.hidden_size) + ")");
  const char* const token = reader.has("image_token_id") ? "image_token_id" : "image_token_index";
  if (reader.integer(token, 256'000, {0}) >= c.text.vocab_size)
    reader.fail_found(token, "not-modelled",
                      "a token that is none of the vocabulary's " + std::to_string(c.text.vocab_size) +
                          " is not supported yet: expected a smaller one");
  reader.ignore({"ignore_index", "hidden_size", "vocab_size", "num_hidden_layers"});
  return c;
}

namespace {

constexpr ModelClass kClasses[] = {{"paligemma", "PaliGemmaForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"PaliGemmaMultiModalProjector"};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_paligemma_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_paligemma(context, config.as<PaliGemmaConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<PaliGemmaConfig>();
  ModelTraits t = vision_language_traits("PaliGemmaForConditionalGeneration", c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.image_size = c.vision.image_size;
  t.cuts_images = true;  // the processor makes a square of any
  t.min_images = 1;
  t.images_why = "without images the class makes other masks, which is not supported yet";
  t.default_sequence_length = c.vision.num_patches() + 128;
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules = {kBlocks[0], c.text.names->decoder_layer, "SiglipVisionEmbeddings",
                        c.vision.family->encoder_layer};
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp, Feature::image_preferences});
  refuse_generate_options(t);
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  t.leave_liger_out();
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<PaliGemmaConfig>().vision.num_patches()};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<PaliGemmaConfig>();
  const ClipVisionConfig& v = c.vision;
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1);
  return std::max({largest_tensor_of(c.text, data), bytes_of({v.hidden_size, c.text.hidden_size}),
                   bytes_of({data.micro_batch_size, data.sequence_length, data.sequence_length}),
                   bytes_of_layer(images, v.num_patches(), v.hidden_size, v.intermediate_size, v.num_attention_heads),
                   bytes_of({images, v.num_channels, v.image_size, v.image_size}),
                   bytes_of({images, v.num_patches(), c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family paligemma{.classes = kClasses,
                              .blocks = kBlocks,
                              .read = read,
                              .build = build,
                              .traits = traits,
                              .largest_tensor = largest_tensor,
                              .count_image = count_image};
}  // namespace family

}  // namespace oometer
