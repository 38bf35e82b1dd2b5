#pragma once

#include <cstdint>

#include "models/data.h"

namespace oometer {

class ConfigReader;

/// Whose sample_frames and smart_resize (models/X/video_processing_X.py): all but Qwen2-VL's have limits of all frames
/// together, grow what is smaller than a token to one first, and need not fill their patches.
enum class VideoProcessor : std::uint8_t { qwen2_vl, qwen3_vl, glm4v };

/// What a video processor makes of a video: which frames it samples, and the grid that it cuts them into.
struct VideoRule {
  std::int64_t patch_size = 14, spatial_merge_size = 2, temporal_patch_size = 2;
  std::int64_t min_pixels = 0, max_pixels = 0;
  VideoProcessor processor = VideoProcessor::qwen2_vl;
};

/// The keys of a job's `data.video` that say how long it is, and how often it is looked at.
Video read_length(ConfigReader& video_reader);
/// A job's `data.video`: its patches and tokens. None of its keys stands beside those of images.
void read_video(ConfigReader& data_reader, const VideoRule& rule, DataConfig& data);
/// The same, of a model whose videos are not modelled.
void refuse_video(ConfigReader& data_reader);

}  // namespace oometer
