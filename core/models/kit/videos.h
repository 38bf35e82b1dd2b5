#pragma once

#include <cstdint>

#include "models/data.h"

namespace oometer {

class ConfigReader;

/// What a video processor makes of a video: which frames it samples, and the grid that it cuts them into.
struct VideoRule {
  std::int64_t patch_size = 14, spatial_merge_size = 2, temporal_patch_size = 2;
  std::int64_t min_pixels = 0, max_pixels = 0;
  /// Limits are of all frames together, what is smaller than a token grows to one first, and frames need not fill
  /// their patches (models/qwen3_vl/video_processing_qwen3_vl.py); else models/qwen2_vl/video_processing_qwen2_vl.py.
  bool of_all_frames = false;
};

/// A job's `data.video`: its patches and tokens. None of its keys stands beside those of images.
void read_video(ConfigReader& data_reader, const VideoRule& rule, DataConfig& data);
/// The same, of a model whose videos are not modelled.
void refuse_video(ConfigReader& data_reader);

}  // namespace oometer
