#include "models/kit/videos.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/grids.h"
#include "rounding.h"

namespace oometer {

namespace {

/// Of Qwen2VLVideoProcessor and Qwen3VLVideoProcessor.
constexpr std::int64_t kMinFrames = 4, kMaxFrames = 768;
/// A film is taken to have 30 frames a second itself: what is sampled depends a little on it.
constexpr double kOfFilm = 30;

/// Glm4vVideoProcessor.sample_frames: different frames, filled up to pairs.
std::int64_t glm4v_frames(std::int64_t film, double fps) {
  constexpr double kMaxDuration = 300;
  const double duration = static_cast<double>(film) / kOfFilm;
  const bool is_long = duration > kMaxDuration;
  const auto wanted =
      std::max(static_cast<std::int64_t>(std::floor(std::min(duration, kMaxDuration) * fps)), std::int64_t{1});
  if (is_long && wanted >= film) return round_up(film, std::int64_t{2});
  std::int64_t frames = 0, last = -1;
  for (std::int64_t i = 0; i < wanted; ++i) {
    const auto step = static_cast<double>(i);
    const double at = is_long ? step * (duration / static_cast<double>(wanted - 1)) * kOfFilm : step * kOfFilm / fps;
    const std::int64_t frame = std::min(film - 1, static_cast<std::int64_t>(std::ceil(at)));
    frames += frame != last ? 1 : 0;
    last = frame;
  }
  return round_up(frames, std::int64_t{2});
}

/// sample_frames, with Python's arithmetic.
std::int64_t sampled_frames(const Video& video, const VideoRule& rule) {
  const auto film = static_cast<std::int64_t>(std::nearbyint(video.seconds * kOfFilm));
  const double wanted = static_cast<double>(film) / kOfFilm * video.fps;
  if (rule.processor == VideoProcessor::glm4v) return glm4v_frames(film, video.fps);
  if (rule.processor == VideoProcessor::qwen3_vl)
    return std::min({std::max(static_cast<std::int64_t>(wanted), kMinFrames), kMaxFrames, film});
  const std::int64_t of_patch = rule.temporal_patch_size, most = std::min(kMaxFrames, film) / of_patch * of_patch;
  const double chosen = std::min(std::max(wanted, static_cast<double>(kMinFrames)), static_cast<double>(most));
  const std::int64_t frames = static_cast<std::int64_t>(chosen) / of_patch * of_patch;
  // torch.arange(0, film, film / frames), which may round to one more
  const auto total = static_cast<double>(film);
  return static_cast<std::int64_t>(std::ceil(total / (total / static_cast<double>(frames))));
}

Video read_keys(ConfigReader& reader) {
  ConfigReader own = reader.object("video");
  Video video = read_length(own);
  std::vector<std::int64_t> size = own.integers("size", {1, 65'536});
  if (size.empty()) size = {672, 448};  // the usual image
  if (size.size() != 2 || std::max(size[0], size[1]) > 200 * std::min(size[0], size[1]))
    own.fail_found("size", "inconsistent", "expected [height, width] in pixels, neither more than 200 times the other");
  own.finish();
  video.height = size.front();
  video.width = size.back();
  video.min_pixels = reader.optional_integer("min_pixels");
  video.max_pixels = reader.optional_integer("max_pixels");
  return video;
}

}  // namespace

Video read_length(ConfigReader& video_reader) {
  Video video;
  if (!video_reader.has("seconds"))
    video_reader.fail("seconds", "missing", "expected the length of the video in seconds");
  video.seconds = video_reader.number("seconds", 1, 0.1, 86'400);
  video.fps = video_reader.number("fps", video.fps, 0.01, 1'000);
  return video;
}

[[gnu::noinline]] void read_video(ConfigReader& reader, const VideoRule& rule, DataConfig& data) {
  for (const char* key : {"image_size", "image_sizes", "grid_thw", "frames"})
    if (reader.has(key)) reader.fail_found(key, "inconsistent", "video says it: leave one of them out");
  const Video video = read_keys(reader);
  if (!reader.ok() || data.images_per_sample == 0) return;
  const std::int64_t frames = sampled_frames(video, rule), factor = rule.patch_size * rule.spatial_merge_size;
  const Pixels limits{static_cast<double>(video.min_pixels.value_or(rule.min_pixels)),
                      static_cast<double>(video.max_pixels.value_or(rule.max_pixels))};
  std::vector<std::int64_t> size{video.height, video.width};
  const bool of_all_frames = rule.processor != VideoProcessor::qwen2_vl;
  if (of_all_frames) grow_to_token(size, factor);
  const auto [rows, columns] =
      smart_resize(size, factor, limits, of_all_frames ? frames : 1, of_all_frames ? rule.temporal_patch_size : 1);
  data.video = video;
  data.grid_t = divide_up(frames, rule.temporal_patch_size);
  data.grid_h = rows * rule.spatial_merge_size;
  data.grid_w = columns * rule.spatial_merge_size;
  data.image_height = data.grid_h * rule.patch_size;
  data.image_width = data.grid_w * rule.patch_size;
  data.tokens_per_image = checked_product(data.grid_t, rows * columns);
  check_sequences(reader, checked_product(data.images(), data.grid_t));
}

[[gnu::noinline]] void refuse_video(ConfigReader& reader) {
  reader.fail_found("video", "not-modelled", "videos of this model are not supported yet: leave it out");
}

}  // namespace oometer
