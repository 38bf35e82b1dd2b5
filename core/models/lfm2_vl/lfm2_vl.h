#pragma once

#include <cstdint>
#include <memory>

#include "models/clip/config.h"
#include "models/kit/text_config.h"
#include "models/model.h"

/// transformers 5.23, models/lfm2_vl/modeling_lfm2_vl.py. Names and order of steps are that file's.
namespace oometer {

class ConfigReader;

/// How Lfm2VlImageProcessor cuts an image: tiles, and a last one of the whole image, each padded to as many patches.
struct Lfm2VlTiles {
  std::int64_t tiles = 1;              ///< with the last one
  std::int64_t rows = 0, columns = 0;  ///< patches of the last one
};

/// class Lfm2VlConfig (models/lfm2_vl/configuration_lfm2_vl.py), with a Siglip2VisionConfig.
struct Lfm2VlConfig {
  ClipVisionConfig vision;
  std::int64_t num_positions = 256;  ///< of the table (num_patches)
  TextConfig text;
  std::int64_t projector_hidden_size = 2560;
  Activation projector_hidden_act = Activation::gelu;
  bool projector_bias = true, projector_use_layernorm = true, tie_word_embeddings = true;
  std::int64_t downsample_factor = 2;

  /// Lfm2VlImageProcessor's own sizes: a tile of 512 pixels a side, at most 256 tokens and at least 64 of an image that
  /// is no tile.
  static constexpr std::int64_t kTileSize = 512, kMinTokens = 64, kMaxTokens = 256;

  std::int64_t patches_per_tile() const {
    const std::int64_t side = kTileSize / vision.patch_size, most = kMaxTokens * downsample_factor * downsample_factor;
    return side * side > most ? side * side : most;
  }
  std::int64_t side_of_tile() const { return kTileSize / vision.patch_size; }
  std::int64_t tokens(const Lfm2VlTiles& of) const {
    const std::int64_t side = (side_of_tile() + downsample_factor - 1) / downsample_factor;
    return (of.tiles - 1) * side * side + (of.rows / downsample_factor) * (of.columns / downsample_factor);
  }
  /// Of an image of so many pixels.
  Lfm2VlTiles cut(std::int64_t height, std::int64_t width) const;
  bool operator==(const Lfm2VlConfig&) const = default;
};

Lfm2VlConfig read_lfm2_vl_config(ConfigReader& reader);
/// Lfm2VlForConditionalGeneration.
std::unique_ptr<Model> build_lfm2_vl(Context& context, const Lfm2VlConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
