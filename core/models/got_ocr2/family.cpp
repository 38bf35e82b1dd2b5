#include "models/family.h"

#include <algorithm>
#include <string>

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

GotOcr2VisionConfig read_vision(ConfigReader& reader) {
  GotOcr2VisionConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.output_channels = reader.integer("output_channels", c.output_channels);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_channels = reader.integer("num_channels", c.num_channels);
  c.image_size = reader.integer("image_size", c.image_size, {1, 65'536});
  c.patch_size = reader.integer("patch_size", c.patch_size, {1, 65'536});
  c.window_size = reader.integer("window_size", c.window_size, {0, 65'536});
  c.mlp_dim = reader.integer("mlp_dim", c.mlp_dim);
  if (reader.has("global_attn_indexes"))
    c.global_attn_indexes = reader.integers("global_attn_indexes", {0, layer_count.max});
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  c.use_abs_pos = reader.boolean("use_abs_pos", true);
  c.use_rel_pos = reader.boolean("use_rel_pos", true);
  reader.ignore({"model_type", "layer_norm_eps"});
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  if (c.side() == 0)
    reader.fail_found("patch_size", "inconsistent",
                      "expected at most image_size (" + std::to_string(c.image_size) + "): no patch fits");
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  GotOcr2Config c;
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  c.vision = read_vision(vision);
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
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp});
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
  const GotOcr2VisionConfig& v = c.vision;
  const std::int64_t images = std::max<std::int64_t>(data.images(), 1),
                     side = v.side() + v.window_size;  // padded to whole windows
  return std::max({largest_tensor_of(c.text, data),
                   bytes_of_layer(images, side * side, v.hidden_size, std::max(v.mlp_dim, 3 * v.hidden_size),
                                  v.num_attention_heads),
                   bytes_of({images, v.num_channels, v.image_size, v.image_size}),
                   bytes_of({images, v.side() * v.side(), 9 * v.output_channels}),
                   bytes_of({v.side(), v.side(), v.hidden_size}),
                   bytes_of({v.hidden_size, v.num_channels, v.patch_size, v.patch_size}),
                   bytes_of({c.text.hidden_size, 18 * v.output_channels}),
                   bytes_of({9 * v.output_channels, std::max(2 * v.output_channels, v.hidden_size)}),
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
