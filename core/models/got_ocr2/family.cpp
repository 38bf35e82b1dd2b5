#include "models/family.h"

#include <algorithm>

#include "config/reader.h"
#include "models/got_ocr2/got_ocr2.h"
#include "models/llama/family.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"got_ocr2", "GotOcr2ForConditionalGeneration"}};
constexpr const char* kBlocks[] = {"GotOcr2VisionLayer"};

constexpr SamClassNames kSam{"GotOcr2VisionLayer", "GotOcr2VisionAttention", "GotOcr2MLPBlock",
                             "GotOcr2VisionNeck",  "GotOcr2PatchEmbeddings", "GotOcr2LayerNorm"};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  GotOcr2Config c;
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  c.vision = read_sam_config(vision, {.names = &kSam});
  vision.finish();
  if (!text.has("model_type")) text.fail("model_type", "missing", "expected the language model's, as \"qwen2\"");
  c.text = read_language_config(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"image_token_index", "image_token_id", "image_seq_length"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_got_ocr2(context, config.as<GotOcr2Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<GotOcr2Config>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c.text, c.tie_word_embeddings);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size", "image_sizes"};
  t.image_size = c.vision.image_size;
  t.cuts_images = true;  // the processor makes a square of any
  t.convolutions = 5;
  t.default_sequence_length = std::max(t.default_sequence_length, c.tokens_per_image());
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.emplace_back(kBlocks[0]);
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp, Feature::image_preferences});
  for (const Feature feature : {Feature::sdpa, Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "transformers has nothing but eager attention for GOT-OCR 2: expected eager");
  for (const Feature feature : {Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<GotOcr2Config>().tokens_per_image()};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<GotOcr2Config>();
  const SamConfig& v = c.vision;
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1);
  return std::max({largest_tensor_of(c.text, data), largest_tensor_of(v, images, v.image_size),
                   bytes_of({c.text.hidden_size, 18 * v.output_channels}),
                   bytes_of({images, c.tokens_per_image(), std::max(c.text.hidden_size, 18 * v.output_channels)}),
                   bytes_of({c.text.hidden_size, c.text.hidden_size})});
}

}  // namespace

namespace family {
extern const Family got_ocr2{.classes = kClasses,
                             .blocks = kBlocks,
                             .read = read,
                             .build = build,
                             .traits = traits,
                             .largest_tensor = largest_tensor,
                             .count_image = count_image};
}  // namespace family

}  // namespace oometer
