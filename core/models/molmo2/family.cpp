#include "models/family.h"

#include <algorithm>
#include <numeric>

#include "config/reader.h"
#include "models/llama/family.h"
#include "models/molmo2/molmo2.h"
#include "models/sizes.h"
#include "models/vision_language.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{"molmo2", kMolmo2Names.causal_lm}};
constexpr const char* kBlocks[] = {kMolmo2Names.decoder_layer, kMolmo2VisionLayer};

TextConfig read_text(ConfigReader& reader, Molmo2Config& c) {
  TextConfig defaults;
  defaults.names = &kMolmo2Names;
  defaults.hidden_size = 4096;
  defaults.num_attention_heads = 32;
  defaults.num_key_value_heads = 8;
  defaults.head_dim = 128;
  defaults.vocab_size = 151'936;
  defaults.num_hidden_layers = 36;
  defaults.intermediate_size = 12'288;
  defaults.max_position_embeddings = 36'864;
  TextConfig text = read_text_sizes(reader, defaults, 128);
  text.qkv_bias = reader.has("qkv_bias") ? reader.boolean("qkv_bias", false) : reader.boolean("attention_bias", false);
  text.tie_word_embeddings = false;
  c.additional_vocab_size = reader.integer("additional_vocab_size", 128, {0, 1 << 30});
  c.norm_after = reader.boolean("norm_after", false);
  const std::string norms = reader.text("qk_norm_type", "qwen3");
  c.norms_whole = norms == "olmo";
  if (norms != "qwen3" && norms != "olmo")
    reader.fail_found("qk_norm_type", "not-modelled", "others are not supported yet: expected qwen3 or olmo");
  if (const auto layers = reader.integers("rope_scaling_layers", {0, 100'000});
      !layers.empty() && std::ssize(layers) != text.num_hidden_layers)
    reader.fail_found("rope_scaling_layers", "not-modelled",
                      "layers with other angles than the rest are not supported yet: expected all of them");
  check_llama_heads(reader, text);
  reader.ignore({"model_type", "rope_parameters", "rope_theta", "rope_scaling", "rms_norm_eps", "layer_norm_eps",
                 "initializer_range", "tie_word_embeddings"});
  return text;
}

void read_attention(ConfigReader& reader, Molmo2AttentionConfig& a) {
  a.out = reader.integer("hidden_size", a.out);
  a.num_attention_heads = reader.integer("num_attention_heads", a.num_attention_heads);
  a.num_key_value_heads = reader.integer("num_key_value_heads", a.num_key_value_heads);
  a.head_dim = reader.integer("head_dim", a.head_dim);
  a.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  a.attention_bias = reader.boolean("attention_bias", true);
  if (a.num_key_value_heads != a.num_attention_heads)
    reader.fail_found("num_key_value_heads", "not-modelled",
                      "fewer heads of keys are not supported yet: expected num_attention_heads");
  reader.ignore({"model_type", "initializer_range", "layer_norm_eps"});
}

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  Molmo2Config c;
  if (reader.has("vit_config"))
    reader.fail("vit_config", "not-modelled",
                "a config of before the tower's new name is not supported yet: expected vision_config, as transformers "
                "saves it");
  ConfigReader vision = reader.object("vision_config"), adapter = reader.object("adapter_config"),
               text = reader.object("text_config");
  read_attention(vision, c.attention);
  c.attention.in = c.attention.out;
  c.intermediate_size = vision.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = vision.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.hidden_act = vision.activation("hidden_act", c.hidden_act);
  c.patch_size = vision.integer("patch_size", c.patch_size);
  c.num_channels = vision.integer("num_channels", c.num_channels);
  if (const auto size = vision.integers("image_size", {1, 65'536}); !size.empty()) {
    if (size.size() != 2 || size[0] != size[1])
      vision.fail_found("image_size", "inconsistent", "expected a square, as its processor does: [side, side]");
    c.image_size = size[0];
  }
  c.num_position_embeddings =
      vision.optional_integer("num_position_embeddings").value_or(checked_product(c.side(), c.side()));
  if (c.num_position_embeddings != checked_product(c.side(), c.side()))
    vision.fail("num_position_embeddings", "inconsistent", "expected as many as a crop has patches");
  if (c.side() < 9)
    vision.fail("image_size", "inconsistent", "expected at least nine patches a side: eight of them overlap");
  if (adapter.has("vision_feature_layer"))
    c.vision_feature_layer = adapter.integers("vision_feature_layer", {-100'000, 100'000});
  for (std::int64_t& layer : c.vision_feature_layer) {
    if (layer < -c.num_hidden_layers || layer >= c.num_hidden_layers)
      adapter.fail("vision_feature_layer", "inconsistent", "expected layers of the tower");
    if (layer < 0) layer += c.num_hidden_layers;
  }
  read_attention(adapter, c.pooling);
  c.pooling.in = checked_product(c.attention.out, std::ssize(c.vision_feature_layer));
  c.adapter_intermediate_size = adapter.integer("intermediate_size", c.adapter_intermediate_size);
  c.adapter_act = adapter.activation("hidden_act", c.adapter_act);
  c.mlp_bias = adapter.boolean("mlp_bias", false);
  c.text = read_text(text, c);
  if (adapter.integer("text_hidden_size", 3584) != c.text.hidden_size)
    adapter.fail("text_hidden_size", "inconsistent",
                 "expected the text's hidden_size (" + std::to_string(c.text.hidden_size) + ")");
  if (reader.boolean("tie_word_embeddings", false))
    reader.fail_found("tie_word_embeddings", "not-modelled",
                      "the head has fewer tokens than the embeddings: expected false");
  vision.finish();
  adapter.finish();
  text.finish();
  reader.ignore({"image_start_token_id", "low_res_image_start_token_id", "image_end_token_id", "image_patch_id",
                 "image_token_id", "frame_start_token_id", "frame_end_token_id", "initializer_range"});
  return c;
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_molmo2(context, config.as<Molmo2Config>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<Molmo2Config>();
  ModelTraits t = vision_language_traits(kMolmo2Names.causal_lm, c.text, false);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.image_keys = {"image_size"};
  t.image_size = c.image_size;
  t.cuts_images = true;
  t.convolutions = 0;
  t.oldest_transformers = {5, 23, 0};
  t.generates = false;
  t.has_no_peft_targets();
  t.allow({Feature::quantization, Feature::fsdp});
  t.no_split_modules = {kMolmo2Names.decoder_layer, kMolmo2VisionLayer, "Molmo2VisionAttention"};
  for (const Feature feature : {Feature::generate_options, Feature::headinfer, Feature::quantized_cache,
                                Feature::turn_images, Feature::chunked_cross_entropy, Feature::packing, Feature::zero3,
                                Feature::image_preferences, Feature::inference})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t) {
  return {1, molmo2_crops(config.as<Molmo2Config>(), height, width).tokens};
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<Molmo2Config>();
  const std::int64_t crops = 9 * std::max<std::int64_t>(data.images(), 1), patches = c.side() * c.side();
  return std::max(
      {largest_tensor_of(c.text, data), bytes_of({data.micro_batch_size, data.sequence_length, data.sequence_length}),
       bytes_of_layer(crops, patches, c.attention.out, c.intermediate_size, c.attention.num_attention_heads),
       bytes_of({crops, patches, std::max(c.pooling.in, c.pixels_per_patch())}),
       bytes_of({crops, patches, c.adapter_intermediate_size}), bytes_of({c.pooling.in, c.attention.out}),
       bytes_of({c.text.vocab_size + c.additional_vocab_size, c.text.hidden_size}),
       bytes_of({c.adapter_intermediate_size, std::max(c.text.hidden_size, c.pooling.out)})});
}

}  // namespace

// Molmo2ImageProcessor.get_image_grid_and_crops, select_tiling, and Molmo2Processor.replace_image_token
Molmo2Crops molmo2_crops(const Molmo2Config& c, std::int64_t height, std::int64_t width) {
  constexpr std::int64_t kMargins = 8, kMostCrops = 8, kPool = 2;
  const std::int64_t window = c.side() - kMargins, window_pixels = window * c.patch_size,
                     margin_pixels = kMargins * c.patch_size;
  const auto high = static_cast<float>(height - margin_pixels), wide = static_cast<float>(width - margin_pixels);
  std::int64_t rows = 1, columns = 1;
  float best = 0;
  bool best_grows = false;
  // In the order of the sort: by tiles, then by rows.
  for (std::int64_t tiles = 1; tiles <= kMostCrops; ++tiles)
    for (std::int64_t r = 1; r <= tiles; ++r) {
      if (tiles % r != 0) continue;
      const std::int64_t k = tiles / r;
      const float scale =
          std::min(static_cast<float>(r * window_pixels) / high, static_cast<float>(k * window_pixels) / wide);
      const bool grows = scale >= 1;
      // Of an image that is narrower than the margins all scales are negative.
      const bool is_better =
          tiles == 1 || (grows && !best_grows) || (grows && scale < best) || (!grows && !best_grows && scale > best);
      if (!is_better) continue;
      best = scale;
      best_grows = grows;
      rows = r;
      columns = k;
    }
  const auto pooled = [&](std::int64_t patches) { return (patches + kPool - 1) / kPool; };
  const std::int64_t low = pooled(c.side()), h = pooled(rows * window + kMargins),
                     w = pooled(columns * window + kMargins);
  return {rows * columns + 1, low * low + h * w, low * (low + 1) + 2 + h * (w + 1) + 2};
}

namespace family {
extern const Family molmo2{.classes = kClasses,
                           .blocks = kBlocks,
                           .read = read,
                           .build = build,
                           .traits = traits,
                           .largest_tensor = largest_tensor,
                           .count_image = count_image};
}  // namespace family

}  // namespace oometer
