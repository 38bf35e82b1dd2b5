#include "models/llama4/config.h"

#include <algorithm>
#include <string>

#include "config/reader.h"

namespace oometer {

namespace {

constexpr std::int64_t kMostTiles = 16;  // max_patches

Llama4VisionConfig read_vision(ConfigReader& reader) {
  constexpr Range kPixels{1, 65'536};
  Llama4VisionConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.num_channels = reader.integer("num_channels", c.num_channels, {1, 1024});
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.vision_output_dim = reader.integer("vision_output_dim", c.vision_output_dim);
  c.image_size = reader.integer("image_size", c.image_size, kPixels);
  c.patch_size = reader.integer("patch_size", c.patch_size, kPixels);
  c.projector_input_dim = reader.integer("projector_input_dim", c.projector_input_dim);
  c.projector_output_dim = reader.integer("projector_output_dim", c.projector_output_dim);
  c.pixel_shuffle_ratio = reader.number("pixel_shuffle_ratio", 0.5, 0.01, 1.0);
  c.projector_dropout = reader.number("projector_dropout", 0, 0, 1);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  reader.ignore({"model_type", "hidden_act", "norm_eps", "vision_feature_select_strategy", "vision_feature_layer",
                 "multi_modal_projector_bias", "rope_parameters", "rope_theta"});  // nothing reads them
  if (c.hidden_size % c.num_attention_heads != 0 || c.head_dim() % 4 != 0)
    reader.fail_found(
        "hidden_size", "inconsistent",
        "expected num_attention_heads (" + std::to_string(c.num_attention_heads) + ") heads of a multiple of 4");
  if (c.patches_per_side() == 0)
    reader.fail_found("patch_size", "inconsistent",
                      "expected at most image_size (" + std::to_string(c.image_size) + "): no patch fits");
  return c;
}

}  // namespace

std::int64_t Llama4ImageConfig::tokens_per_side() const {
  return static_cast<std::int64_t>(static_cast<double>(vision.patches_per_side()) * vision.pixel_shuffle_ratio);
}

// In float32, as torch divides integers.
std::int64_t Llama4ImageConfig::tiles(std::int64_t height, std::int64_t width) const {
  float best = -1;
  std::int64_t least = 1;
  for (std::int64_t count = 1; count <= kMostTiles; ++count)
    for (std::int64_t rows = 1; rows <= count; ++rows) {
      if (count % rows != 0) continue;
      const auto scale_of = [&](std::int64_t tiles_along, std::int64_t pixels) {
        return static_cast<float>(tiles_along * vision.image_size) / static_cast<float>(pixels);
      };
      const float scale = std::min(scale_of(rows, height), scale_of(count / rows, width));
      // The least that is not below one, or else the largest; of several the fewest tiles.
      const bool is_better = best >= 1 ? scale >= 1 && scale < best : scale > best;
      if (!is_better) continue;
      best = scale;
      least = count;
    }
  return least == 1 ? 1 : least + 1;
}

Llama4ImageConfig read_llama4_config(ConfigReader& reader) {
  Llama4ImageConfig c;
  ConfigReader vision = reader.object("vision_config");
  c.vision = read_vision(vision);
  const Llama4VisionConfig& v = c.vision;
  ConfigReader text = reader.object("text_config");
  c.text = read_llama4_text_config(text);
  text.ignore({"model_type"});
  text.finish();
  reader.ignore({"image_token_index", "image_token_id", "boi_token_index", "boi_token_id", "eoi_token_index",
                 "eoi_token_id", "tie_word_embeddings"});  // the language model's own config says what is tied
  const auto floor_of = [](double x) { return static_cast<std::int64_t>(x); };
  const double ratio = v.pixel_shuffle_ratio;
  const std::int64_t side = v.patches_per_side();
  if (floor_of(static_cast<double>(v.hidden_size) / (ratio * ratio)) != v.intermediate_size)
    vision.fail("intermediate_size", "inconsistent",
                "found " + std::to_string(v.intermediate_size) +
                    "; the adapter is given hidden_size divided by the square of pixel_shuffle_ratio: expected " +
                    std::to_string(floor_of(static_cast<double>(v.hidden_size) / (ratio * ratio))));
  if (static_cast<double>(c.tokens_per_side()) != static_cast<double>(side) * ratio ||
      floor_of(1 / ratio) != static_cast<std::int64_t>(1 / ratio) || side % floor_of(1 / ratio) != 0 ||
      ratio * static_cast<double>(floor_of(1 / ratio)) != 1)
    vision.fail_found("pixel_shuffle_ratio", "inconsistent",
                      "expected one over a divisor of the " + std::to_string(side) + " patches along a tile's side");
  if (v.projector_input_dim != v.projector_output_dim)
    vision.fail("projector_output_dim", "inconsistent",
                "found " + std::to_string(v.projector_output_dim) + "; expected projector_input_dim (" +
                    std::to_string(v.projector_input_dim) + ")");
  if (v.vision_output_dim != v.projector_output_dim)
    vision.fail("vision_output_dim", "inconsistent",
                "found " + std::to_string(v.vision_output_dim) + "; expected projector_output_dim (" +
                    std::to_string(v.projector_output_dim) + ")");
  vision.finish();
  return c;
}

}  // namespace oometer
