#include "models/pixtral/config.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "config/reader.h"
#include "rounding.h"

namespace oometer {

PixtralVisionConfig read_pixtral_vision_config(ConfigReader& reader) {
  constexpr Range kPixels{1, 65'536};
  PixtralVisionConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_channels = reader.integer("num_channels", c.num_channels);
  c.image_size = reader.integer("image_size", c.image_size, kPixels);
  c.patch_size = reader.integer("patch_size", c.patch_size, kPixels);
  c.hidden_act = reader.activation("hidden_act", c.hidden_act);
  c.attention_dropout = reader.number("attention_dropout", 0.0, 0.0, 1.0);
  reader.ignore({"model_type", "head_dim", "vocab_size"});  // head_dim follows, whatever the file says (__post_init__)
  if (c.hidden_size % c.num_attention_heads != 0 || c.head_dim() % 4 != 0)
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected num_attention_heads (" + std::to_string(c.num_attention_heads) + ") heads of a multiple of 4");
  return c;
}

std::pair<std::int64_t, std::int64_t> pixtral_cells(std::int64_t height, std::int64_t width, std::int64_t longest_edge,
                                                    std::int64_t cell) {
  const double edge = static_cast<double>(longest_edge);
  const double ratio = std::max(static_cast<double>(height) / edge, static_cast<double>(width) / edge);
  const auto scaled = [&](std::int64_t side) {
    if (ratio > 1) side = static_cast<std::int64_t>(std::floor(static_cast<double>(side) / ratio));
    return std::max<std::int64_t>(divide_up(side, cell), 1);
  };
  return {scaled(height), scaled(width)};
}

}  // namespace oometer
