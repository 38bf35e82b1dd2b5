#include "models/aya_vision/config.h"

#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/cohere2/cohere2.h"
#include "models/kit/image_text.h"
#include "models/siglip/config.h"

namespace oometer {

namespace {

constexpr std::int64_t kMostTiles = 12;

// get_optimal_tiled_canvas (models/cohere2_vision/image_processing_cohere2_vision.py), in numpy's doubles: of all grids
// the one that scales the image up least, or else down least; its first of several.
std::int64_t least_scaled_tiles(std::int64_t height, std::int64_t width, std::int64_t side) {
  double best_up = 1e10, best_down = -1;
  std::int64_t up = 0, down = 1;
  // In the order of Python's stable sort by the number of tiles, of pairs that are listed by width.
  for (std::int64_t tiles = 1; tiles <= kMostTiles; ++tiles)
    for (std::int64_t columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const double scale = std::min(static_cast<double>(columns * side) / static_cast<double>(width),
                                    static_cast<double>(tiles / columns * side) / static_cast<double>(height));
      if (scale >= 1 && scale < best_up) {
        best_up = scale;
        up = tiles;
      }
      if (scale > best_down) {
        best_down = scale;
        down = tiles;
      }
    }
  return up != 0 ? up : down;
}

}  // namespace

std::int64_t AyaVisionConfig::tiles(std::int64_t height, std::int64_t width) const {
  const std::int64_t best = of->is_aya ? nearest_tiles(height, width, vision.image_size, kMostTiles)
                                       : least_scaled_tiles(height, width, vision.image_size);
  return best == 1 ? 1 : best + 1;
}

AyaVisionConfig read_aya_vision_config(ConfigReader& reader, const AyaVisionClass& of) {
  AyaVisionConfig c;
  c.of = &of;
  ConfigReader vision = reader.object("vision_config");
  vision.choice<int>("model_type", 0, {{"siglip_vision_model", 0}});
  c.vision = read_siglip_vision_config(vision);
  vision.finish();
  ConfigReader text = reader.object("text_config");
  text.choice<int>("model_type", 0, {{"cohere2", 0}});
  c.text = read_cohere2_config(text);
  text.finish();
  if (!reader.has("vision_config") || !reader.has("text_config"))
    reader.fail(reader.has("vision_config") ? "text_config" : "vision_config", "missing",
                "found none; expected one, as all published models have");
  c.downsample_factor = reader.integer("downsample_factor", 2, {1, 1024});
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.alignment_intermediate_size = reader.integer("alignment_intermediate_size", of.is_aya ? c.text.hidden_size : 36864);
  const std::int64_t layers = c.vision.num_hidden_layers;
  c.vision_feature_layer = layers;
  if (of.is_aya) {
    c.vision_feature_layer = reader.integer("vision_feature_layer", -1, {-layers - 1, layers});
    if (c.vision_feature_layer < 0) c.vision_feature_layer += layers + 1;
    reader.choice<int>("vision_feature_select_strategy", 0, {{"full", 0}});
  }
  reader.ignore({"image_token_index", "image_token_id", "adapter_layer_norm_eps"});
  if (c.patches_per_side() % c.downsample_factor != 0 || c.patches_per_side() == 0)
    reader.fail_found(
        "downsample_factor", "inconsistent",
        "expected one that divides the " + std::to_string(c.patches_per_side()) + " patches along a tile's side");
  if (c.alignment_intermediate_size % 2 != 0)
    reader.fail_found("alignment_intermediate_size", "inconsistent", "expected an even number");
  return c;
}

}  // namespace oometer
