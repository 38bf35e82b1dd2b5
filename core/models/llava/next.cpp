#include "models/llava/next.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "config/reader.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

std::vector<LlavaConfig::Resolution> read_grid_pinpoints(ConfigReader& reader, std::int64_t tile) {
  constexpr const char* kKey = "image_grid_pinpoints";
  if (!reader.has(kKey)) return {{336, 672}, {672, 336}, {672, 672}, {1008, 336}, {336, 1008}};
  std::vector<LlavaConfig::Resolution> pinpoints;
  const nlohmann::json& list = *reader.find(kKey);
  const auto is_size = [&](const nlohmann::json& side) {
    return side.is_number_integer() && side > 0 && side <= 65'536 && side.get<std::int64_t>() % tile == 0;
  };
  for (const nlohmann::json& item : list) {
    if (!list.is_array() || !item.is_array() || item.size() != 2 || !is_size(item[0]) || !is_size(item[1])) break;
    pinpoints.push_back({item[0], item[1]});
  }
  if (pinpoints.empty() || pinpoints.size() != list.size() || pinpoints.size() > 1024)
    reader.fail_found(
        kKey, "wrong-type",
        "expected a list of [height, width] in multiples of the tower's image_size (" + std::to_string(tile) + ")");
  if (pinpoints.empty()) pinpoints = {{tile, tile}};
  return pinpoints;
}

LlavaConfig::Anyres LlavaConfig::anyres(std::int64_t height, std::int64_t width) const {
  // select_best_resolution (image_processing_utils.py)
  const auto real = [](std::int64_t n) { return static_cast<double>(n); };
  Resolution best = image_grid_pinpoints.front();
  std::int64_t most_effective = 0, least_wasted = 0;
  for (const Resolution& r : image_grid_pinpoints) {
    const double scale = std::min(real(r.width) / real(width), real(r.height) / real(height));
    const std::int64_t scaled_width = static_cast<std::int64_t>(real(width) * scale),
                       scaled_height = static_cast<std::int64_t>(real(height) * scale);
    const std::int64_t effective = std::min(scaled_width * scaled_height, width * height),
                       wasted = r.height * r.width - effective;
    if (effective < most_effective || (effective == most_effective && (effective == 0 || wasted >= least_wasted)))
      continue;
    most_effective = effective;
    least_wasted = wasted;
    best = r;
  }
  Anyres a;
  a.tile_rows = best.height / vision.image_size;
  a.tile_columns = best.width / vision.image_size;
  // unpad_image (modeling_llava_next.py): int(round(x, 7)), then as much off at both ends
  const std::int64_t side = vision.image_size / vision.patch_size;
  a.rows = a.tile_rows * side;
  a.columns = a.tile_columns * side;
  const auto left = [&](std::int64_t current, std::int64_t original, double scale) {
    const auto size = static_cast<std::int64_t>(std::floor(real(original) * scale + 5e-8));
    return current - (current - size) / 2 * 2;
  };
  if (real(width) / real(height) > real(a.columns) / real(a.rows))
    a.rows = left(a.rows, height, real(a.columns) / real(width));
  else
    a.columns = left(a.columns, width, real(a.rows) / real(height));
  a.unpadded_rows = a.rows;
  a.unpadded_columns = a.columns;
  if (is_onevision()) {
    // Python's // of floats
    const auto divided = [&](std::int64_t n, double ratio) {
      const double quotient = (real(n) - std::fmod(real(n), ratio)) / ratio, whole = std::floor(quotient);
      return static_cast<std::int64_t>(quotient - whole > 0.5 ? whole + 1 : whole);
    };
    const double ratio = std::sqrt(real(a.rows * a.columns) / real(max_num_patches * side * side));
    if (ratio > 1.1) {
      a.rows = divided(a.rows, ratio);
      a.columns = divided(a.columns, ratio);
    }
  }
  a.tokens = tokens_per_image() + a.rows * (a.columns + 1);
  return a;
}

LlavaConfig read_llava_next_config(ConfigReader& reader) {
  const std::int64_t tile = reader.has("vision_config")
                                ? reader.object("vision_config").integer("image_size", 224, {1, 65'536})
                                : 336;  // LlavaNextConfig.sub_configs_defaults
  const std::vector<LlavaConfig::Resolution> pinpoints = read_grid_pinpoints(reader, tile);
  reader.ignore({"use_image_newline_parameter"});
  LlavaConfig c = read_llava_config(reader, Framework::transformers);
  c.of = &kLlavaNext;
  c.image_grid_pinpoints = pinpoints;
  // LlavaNextModel.pack_image_features: view(rows, columns, height, width, -1) of a tile's features
  if (c.tokens_per_image() != c.vision.num_patches())
    reader.fail_found("vision_feature_select_strategy", "inconsistent",
                      c.has_siglip() ? "expected \"full\": this tower has no class token to drop"
                                     : "expected \"default\": with the class token the features are no grid");
  return c;
}

TensorList pack_image_features(const LlavaConfig& config, const DataConfig& data, const TensorList& image_features,
                               const Tensor& image_newline) {
  const std::int64_t side = config.vision.image_size / config.vision.patch_size, width = config.text.hidden_size;
  TensorList new_image_features;
  Tensor base_image_feature, image_feature;
  for (std::size_t i = 0; i < image_features.size(); ++i) {
    const Tensor& tiles = image_features[i];
    const ImageShape& image = data.image(static_cast<std::int64_t>(i));
    const LlavaConfig::Anyres anyres = config.anyres(image.image_height, image.image_width);
    base_image_feature = select(tiles, 0, 0);
    image_feature = slice(tiles, 0, 1, tiles.size(0) - 1);
    image_feature = view(image_feature, {anyres.tile_rows, anyres.tile_columns, side, side, width});
    for (const int dim : {3, 2, 1, 0, 2}) image_feature = transpose(image_feature, dim, dim + 1);  // 4, 0, 2, 1, 3
    image_feature = contiguous(image_feature);
    image_feature = view(image_feature, {width, anyres.tile_rows * side, anyres.tile_columns * side});
    // Indexing passes over slices that take everything (python_variable_indexing.h, applySlice).
    if (anyres.unpadded_rows != image_feature.size(1)) image_feature = slice(image_feature, 1, 0, anyres.unpadded_rows);
    if (anyres.unpadded_columns != image_feature.size(2))
      image_feature = slice(image_feature, 2, 0, anyres.unpadded_columns);
    if (anyres.rows != anyres.unpadded_rows || anyres.columns != anyres.unpadded_columns) {
      image_feature = unsqueeze(image_feature, 0);
      image_feature =
          pool(Op::upsample, Op::upsample_backward, image_feature, {1, width, anyres.rows, anyres.columns}, false);
      image_feature = select(image_feature, 0, 0);
    }
    {
      Tensor newline = expand(unsqueeze(unsqueeze(image_newline, 1), 2), {width, anyres.rows, 1});
      newline = to(newline, image_feature.dtype());
      image_feature = cat({image_feature, newline}, 2);
    }
    image_feature = transpose(view(image_feature, {width, anyres.rows * (anyres.columns + 1)}), 0, 1);
    image_feature = cat({base_image_feature, image_feature}, 0);
    new_image_features.push_back(image_feature);
  }
  return new_image_features;
}

}  // namespace oometer
