#include "models/family.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "config/reader.h"
#include "models/ovis2/ovis2.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

Ovis2Config read_ovis2_config(ConfigReader& reader) {
  Ovis2Config c;
  ClipVisionConfig d;
  d.family = &kOvis2Vision;
  d.hidden_size = 1024;
  d.intermediate_size = 2816;
  d.num_hidden_layers = 24;
  d.num_attention_heads = 8;
  d.patch_size = 14;
  d.hidden_act = Activation::silu;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_vision_sizes(vision, d);
  c.qkv_bias = vision.boolean("qkv_bias", false);
  c.mlp_bias = vision.boolean("mlp_bias", false);
  c.visual_vocab_size = vision.integer("vocab_size", c.visual_vocab_size);
  c.num_visual_indicator_tokens = vision.integer("num_visual_indicator_tokens", c.num_visual_indicator_tokens);
  c.hidden_stride = vision.integer("hidden_stride", c.hidden_stride, {1, 1024});
  vision.choice<int>("tokenize_function", 0, {{"softmax", 0}});
  vision.ignore({"model_type", "rms_norm_eps"});
  vision.finish();
  ConfigReader text = reader.object("text_config");
  if (!text.has("model_type")) text.fail("model_type", "missing", "expected the language model's, as \"qwen2\"");
  c.text = read_language_config(text);
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  reader.ignore({"image_token_id", "visual_indicator_token_ids"});
  // Ovis2ForConditionalGeneration.__init__ makes lm_head of these.
  for (const auto& [key, usual, own] : {std::tuple{"hidden_size", std::int64_t{1536}, c.text.hidden_size},
                                        std::tuple{"vocab_size", std::int64_t{151643}, c.text.vocab_size}})
    if (reader.integer(key, usual) != own)
      reader.fail_found(key, "inconsistent", "expected the language model's (" + std::to_string(own) + ")");
  if (c.side() % c.hidden_stride != 0)
    vision.fail_found("hidden_stride", "inconsistent",
                      "expected a divisor of the " + std::to_string(c.side()) + " patches along an image's side");
  if (c.words() <= 0) vision.fail_found("vocab_size", "inconsistent", "expected more than num_visual_indicator_tokens");
  if (c.num_visual_indicator_tokens != 5)
    vision.fail_found("num_visual_indicator_tokens", "not-modelled", "expected 5, as published models have");
  return c;
}

namespace {

constexpr ModelClass kClasses[] = {{"ovis2", "Ovis2ForConditionalGeneration"}};
constexpr const char* kBlocks[] = {kOvis2Vision.attention, kOvis2Vision.encoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) { return read_ovis2_config(reader); }

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_ovis2(context, config.as<Ovis2Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Ovis2Config>();
  ModelTraits t = vision_language_traits(kClasses[0].class_name, c);
  t.set_parts("vision_tower", "visual_embeddings_table", "language_model");
  t.cuts_images = true;  // the processor makes a square of any
  t.image_keys.push_back("image_sizes");
  t.default_sequence_length = std::max(t.default_sequence_length, c.tokens_per_image() + 3);
  t.oldest_transformers = {5, 23, 0};
  t.no_split_modules.back() = kOvis2Vision.attention;
  t.allow({Feature::quantization});
  for (const Feature feature :
       {Feature::zero3, Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t, std::int64_t, std::int64_t) {
  return {1, config.as<Ovis2Config>().tokens_per_image()};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Ovis2Config>();
  return std::max({largest_tensor_of(c, data),
                   bytes_of({c.visual_vocab_size, std::max(c.merged_size(), c.text.hidden_size)}),
                   bytes_of({data.images(), c.tokens_per_image(), c.visual_vocab_size})});
}

}  // namespace

namespace family {
extern const Family ovis2{.classes = kClasses,
                          .blocks = kBlocks,
                          .read = read,
                          .build = build,
                          .traits = traits,
                          .largest_tensor = largest_tensor,
                          .count_image = count_image};
}  // namespace family

}  // namespace oometer
