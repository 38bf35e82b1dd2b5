#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "models/clip/config.h"
#include "models/data.h"
#include "models/kit/text_config.h"

namespace oometer {

class ConfigReader;

/// What the classes are called: MiniCPM-V 4.7's (models/minicpmv4_7) and MiniCPM-OCR's (models/minicpm_ocr) are copies
/// of MiniCPM-V 4.6's.
struct MiniCpmVFamily {
  const char *class_name, *model, *window_merger, *downsample_mlp, *merger;
  VisionFamily vision;
  bool downsamples_16_times;          ///< by default
  bool ties_embeddings;               ///< the same
  bool has_canvas_positions = false;  ///< its tokens have positions of frame, row and column
};
extern const MiniCpmVFamily kMiniCpmV46, kMiniCpmV47, kMiniCpmOcr;

/// transformers 5.23, models/minicpmv4_6/configuration_minicpmv4_6.py.
struct MiniCpmVConfig {
  const MiniCpmVFamily* family = &kMiniCpmV46;
  ClipVisionConfig vision;
  TextConfig text;
  bool tie_word_embeddings = false;
  bool downsamples_16_times = true;  ///< downsample_mode: windows are merged in the middle of the tower, too
  std::int64_t insert_layer_id = 6;  ///< behind which layer

  /// Both kernels' side: other ones do not fit the classes' own arithmetic.
  static constexpr std::int64_t kMerge = 2;

  /// Rows and columns of patches of the whole image, then of its slices (image_processing_minicpmv4_6.py).
  std::vector<std::pair<std::int64_t, std::int64_t>> cut(std::int64_t height, std::int64_t width) const;
  std::int64_t merges() const { return downsamples_16_times ? kMerge * kMerge : kMerge; }
  std::int64_t tokens(std::int64_t rows, std::int64_t columns) const {
    return (rows / merges()) * (columns / merges());
  }

  bool operator==(const MiniCpmVConfig&) const = default;
};

MiniCpmVConfig read_minicpm_v_config(ConfigReader& reader, const MiniCpmVFamily& family);

}  // namespace oometer
