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

std::int64_t Idefics3Config::tiles(std::int64_t height, std::int64_t width) const {
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

Idefics3Config read_idefics3_config(ConfigReader& reader, const Idefics3Family& family) {
  Idefics3Config c;
  c.family = &family;
  ClipVisionConfig defaults;  // class Idefics3VisionConfig
  defaults.family = &family.vision;
  defaults.hidden_size = 1152;
  defaults.num_attention_heads = 16;
  defaults.hidden_act = Activation::gelu_tanh;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_vision_sizes(vision, defaults);
  c.tile_size = read_longest_edge(vision, "max_image_size", c.vision.image_size);
  c.longest_edge = read_longest_edge(vision, "size", 4 * c.tile_size);
  vision.ignore({"model_type", "tie_word_embeddings", "use_base_siglip"});
  vision.finish();
  ConfigReader text = reader.object("text_config");
  c.text = read_language_config(text);
  // Of the code that these models were trained with; the classes never read them.
  text.ignore({"is_llama_config", "neftune_noise_alpha", "perceiver_config", "pixel_shuffle_factor", "qk_layer_norms",
               "rope_interleaved", "transformers.js_config", "use_resampler", "_flash_attn_2_enabled"});
  text.finish();
  c.scale_factor = reader.integer("scale_factor", 2, {1, 1024});
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  reader.ignore({"image_seq_len", "image_token_id", "vocab_size", "use_reentrant_checkpointing"});

  // Idefics3Connector.pixel_shuffle: x.view(batch, height, width / scale_factor, ...).
  const std::int64_t side = c.tile_size / c.vision.patch_size;
  if (side == 0 || side % c.scale_factor != 0)
    reader.fail_found("scale_factor", "inconsistent",
                      "expected a divisor of the " + std::to_string(side) + " patches along a tile's side");
  return c;
}

}  // namespace oometer
