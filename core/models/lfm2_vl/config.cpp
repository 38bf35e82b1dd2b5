#include "models/siglip/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "config/reader.h"
#include "models/lfm2/lfm2.h"
#include "models/lfm2_vl/lfm2_vl.h"

namespace oometer {

namespace {

/// Python's round(number / factor) * factor.
std::int64_t round_by_factor(std::int64_t number, std::int64_t factor) {
  return static_cast<std::int64_t>(std::nearbyint(static_cast<double>(number) / static_cast<double>(factor))) * factor;
}

/// crop_image_to_patches' grid: of 2 to 10 tiles the one nearest to the image's shape (find_closest_aspect_ratio).
std::int64_t tiles_of(std::int64_t height, std::int64_t width, std::int64_t tile) {
  constexpr std::int64_t kMin = 2, kMax = 10;
  const double aspect_ratio = static_cast<double>(width) / static_cast<double>(height),
               area = static_cast<double>(width) * static_cast<double>(height);
  double best_difference = std::numeric_limits<double>::infinity();
  std::int64_t best = 1;
  for (std::int64_t count = kMin; count <= kMax; ++count) {
    for (std::int64_t columns = 1; columns <= count; ++columns) {
      if (count % columns != 0) continue;
      const std::int64_t rows = count / columns;
      const double difference = std::abs(aspect_ratio - static_cast<double>(columns) / static_cast<double>(rows));
      const bool is_nearer = difference < best_difference;
      if (is_nearer || (difference == best_difference && area > 0.5 * static_cast<double>(tile * tile * count)))
        best = count;
      if (is_nearer) best_difference = difference;
    }
  }
  return best;
}

}  // namespace

Lfm2VlTiles Lfm2VlConfig::cut(std::int64_t height, std::int64_t width) const {
  const std::int64_t factor = vision.patch_size * downsample_factor, area = factor * factor;
  const auto sides = [&](std::int64_t least) {
    return std::max(least, round_by_factor(height, factor)) * std::max(least, round_by_factor(width, factor));
  };
  Lfm2VlTiles of;
  if (sides(vision.patch_size) > 2 * kMaxTokens * area) of.tiles = tiles_of(height, width, kTileSize) + 1;
  // smart_resize
  std::int64_t h_bar = std::max(factor, round_by_factor(height, factor)),
               w_bar = std::max(factor, round_by_factor(width, factor));
  const auto scaled = [&](std::int64_t side, double by, auto rounded) {
    return static_cast<std::int64_t>(rounded(static_cast<double>(side) * by / static_cast<double>(factor))) * factor;
  };
  const auto divided = [&](std::int64_t side, double beta) {
    return std::max(
        factor,
        static_cast<std::int64_t>(std::floor(static_cast<double>(side) / beta / static_cast<double>(factor))) * factor);
  };
  const double pixels = static_cast<double>(height) * static_cast<double>(width);
  if (h_bar * w_bar > kMaxTokens * area) {
    const double beta = std::sqrt(pixels / static_cast<double>(kMaxTokens * area));
    h_bar = divided(height, beta);
    w_bar = divided(width, beta);
  } else if (h_bar * w_bar < kMinTokens * area) {
    const double beta = std::sqrt(static_cast<double>(kMinTokens * area) / pixels);
    const auto up = [](double x) { return std::ceil(x); };
    h_bar = scaled(height, beta, up);
    w_bar = scaled(width, beta, up);
  }
  of.rows = h_bar / vision.patch_size;
  of.columns = w_bar / vision.patch_size;
  return of;
}

Lfm2VlConfig read_lfm2_vl_config(ConfigReader& reader) {
  Lfm2VlConfig c;
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  c.vision = read_siglip2_vision_config(vision, c.num_positions);
  if (c.vision.has_head)
    vision.fail_found("vision_use_head", "not-modelled",
                      "a tower with a head that nobody reads is not supported yet: expected false");
  if (Lfm2VlConfig::kTileSize % c.vision.patch_size != 0)
    vision.fail_found("patch_size", "inconsistent", "expected a part of the processor's tile of 512 pixels");
  vision.finish();
  c.text = read_lfm2_config(text);
  text.ignore({"model_type"});
  text.finish();
  c.projector_hidden_size = reader.integer("projector_hidden_size", c.projector_hidden_size);
  c.projector_hidden_act = reader.activation("projector_hidden_act", Activation::gelu);
  c.projector_bias = reader.boolean("projector_bias", true);
  c.projector_use_layernorm = reader.boolean("projector_use_layernorm", true);
  c.downsample_factor = reader.integer("downsample_factor", 2, {1, 32});
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  if (reader.has("tie_embedding")) c.tie_word_embeddings = reader.boolean("tie_embedding", true);
  if (c.vision.patch_size > 0 && c.side_of_tile() % c.downsample_factor != 0)
    reader.fail_found("downsample_factor", "inconsistent", "expected a part of a tile's patches");
  // What the published processors have; other values of these are not read by the class.
  reader.ignore({"image_token_id", "image_token_index", "do_image_splitting", "encoder_patch_size", "max_image_tokens",
                 "max_num_patches", "max_pixels_tolerance", "max_tiles", "min_image_tokens", "min_tiles", "tile_size",
                 "use_image_special_tokens", "use_thumbnail", "vision_feature_layer"});
  return c;
}

}  // namespace oometer
