#include "models/idefics3/config.h"

#include <algorithm>

#include "config/reader.h"
#include "models/registry.h"
#include "rounding.h"

namespace oometer {
namespace {

constexpr std::int64_t kMaxImageSize = 4096;  // image_processing_idefics3.py, MAX_IMAGE_SIZE

struct Size {
  std::int64_t height, width;
};

/// The longer side becomes `edge`, the other follows: int(edge / aspect_ratio), in Python's doubles.
Size scaled(Size size, std::int64_t edge) {
  const double aspect_ratio = static_cast<double>(size.width) / static_cast<double>(size.height);
  const double side = static_cast<double>(edge);
  if (size.width >= size.height) return {static_cast<std::int64_t>(side / aspect_ratio), edge};
  return {edge, static_cast<std::int64_t>(side * aspect_ratio)};
}

Size at_least_1(Size size) { return {std::max<std::int64_t>(size.height, 1), std::max<std::int64_t>(size.width, 1)}; }

/// {"longest_edge": N}, as the processor's settings have it.
std::int64_t read_longest_edge(ConfigReader& vision, const char* key, std::int64_t fallback) {
  if (!vision.is_object(key)) return fallback;  // another model's spelling of a size
  ConfigReader size = vision.object(key);
  const std::int64_t edge = size.integer("longest_edge", fallback, {1, 65'536});
  size.finish();
  return edge;
}

}  // namespace

// get_resize_output_image_size (models/idefics2/image_processing_idefics2.py), with the size of the class.
std::pair<std::int64_t, std::int64_t> Idefics3Config::pixels(const ImageShape& image) const {
  if (!family->has_perceiver) return {tile_size, tile_size};
  constexpr std::int64_t kShortestEdge = 378, kLongestEdge = 980;
  Size size{image.image_height, image.image_width};
  if (std::max(size.height, size.width) > kLongestEdge) size = scaled(size, kLongestEdge);
  return {std::max(size.height, kShortestEdge), std::max(size.width, kShortestEdge)};
}

std::int64_t Idefics3Config::tiles(std::int64_t height, std::int64_t width) const {
  if (family->has_perceiver) return 1;
  // get_resize_output_image_size: the shorter side is even, neither is longer than kMaxImageSize.
  Size size = scaled({height, width}, longest_edge);
  std::int64_t& shorter = width >= height ? size.height : size.width;
  shorter += shorter % 2;
  size = at_least_1(size);
  if (std::max(size.height, size.width) > kMaxImageSize) size = at_least_1(scaled(size, kMaxImageSize));
  // resize_for_vision_encoder: both become multiples of a tile.
  size = at_least_1(scaled(size, round_up(std::max(size.height, size.width), tile_size)));
  const std::int64_t cut = divide_up(size.height, tile_size) * divide_up(size.width, tile_size);
  return cut == 1 ? 1 : cut + 1;
}

namespace {

Idefics2PerceiverConfig read_perceiver(ConfigReader& reader) {
  Idefics2PerceiverConfig c;
  c.n_latents = reader.integer("resampler_n_latents", c.n_latents);
  c.depth = reader.integer("resampler_depth", c.depth, layer_count);
  c.n_heads = reader.integer("resampler_n_heads", c.n_heads);
  c.head_dim = reader.integer("resampler_head_dim", c.head_dim);
  c.num_key_value_heads = reader.integer("num_key_value_heads", c.num_key_value_heads);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  reader.ignore({"model_type", "hidden_size", "rms_norm_eps", "qk_layer_norms_perceiver"});
  if (c.n_heads % c.num_key_value_heads != 0)
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "expected a divisor of resampler_n_heads (" + std::to_string(c.n_heads) + ")");
  return c;
}

}  // namespace

Idefics3Config read_idefics3_config(ConfigReader& reader, const Idefics3Family& family) {
  Idefics3Config c;
  c.family = &family;
  ClipVisionConfig defaults;  // class Idefics3VisionConfig
  defaults.family = &family.vision;
  if (!family.has_perceiver) {
    defaults.hidden_size = 1152;
    defaults.num_attention_heads = 16;
  }
  defaults.hidden_act = Activation::gelu_tanh;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_vision_sizes(vision, defaults);
  c.tile_size = read_longest_edge(vision, "max_image_size", c.vision.image_size);
  c.longest_edge = read_longest_edge(vision, "size", 4 * c.tile_size);
  vision.ignore({"model_type", "tie_word_embeddings", "use_base_siglip"});
  vision.finish();
  ConfigReader text = reader.object("text_config");
  if (family.has_perceiver && !text.has("model_type"))
    text.fail("model_type", "missing", "expected the language model's, \"mistral\" in published files");
  c.text = read_language_config(text);
  // Of the code that these models were trained with; the classes never read them.
  text.ignore({"is_llama_config", "neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor", "qk_layer_norms",
               "rope_interleaved", "transformers.js_config", "use_resampler", "_flash_attn_2_enabled"});
  text.finish();
  if (family.has_perceiver) {
    ConfigReader perceiver = reader.object("perceiver_config");
    c.perceiver = read_perceiver(perceiver);
    perceiver.finish();
  } else
    c.scale_factor = reader.integer("scale_factor", 2, {1, 1024});
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  reader.ignore({"image_seq_len", "image_token_id", "vocab_size", "use_reentrant_checkpointing"});

  // Idefics3Connector.pixel_shuffle: x.view(batch, height, width / scale_factor, ...).
  const std::int64_t side = c.tile_size / c.vision.patch_size;
  if (!family.has_perceiver && (side == 0 || side % c.scale_factor != 0))
    reader.fail_found("scale_factor", "inconsistent",
                      "expected a divisor of the " + std::to_string(side) + " patches along a tile's side");
  return c;
}

}  // namespace oometer
