#include "models/minicpmv4_6/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "config/reader.h"
#include "models/qwen3_5/qwen3_5.h"

namespace oometer {

namespace {

using Sides = std::pair<std::int64_t, std::int64_t>;  ///< height, width

/// Python's max(round(length / divisor) * divisor, divisor).
std::int64_t ensure_divide(double length, std::int64_t divisor) {
  return std::max(static_cast<std::int64_t>(std::nearbyint(length / static_cast<double>(divisor))) * divisor, divisor);
}

constexpr std::int64_t kScaleResolution = 448, kMaxSlices = 9;  // MiniCPMV4_6ImageProcessor's own

Sides find_best_resize(double height, double width, std::int64_t factor, bool allow_upscale) {
  const double side = static_cast<double>(kScaleResolution);
  if (height * width > side * side || allow_upscale) {
    const double aspect_ratio = width / height;
    height = std::floor(side / std::sqrt(aspect_ratio));
    width = std::floor(height * aspect_ratio);
  }
  return {ensure_divide(height, factor), ensure_divide(width, factor)};
}

/// get_sliced_grid: rows and columns; zeros: the image is not cut.
Sides sliced_grid(std::int64_t height, std::int64_t width) {
  const double log_ratio = std::log(static_cast<double>(width) / static_cast<double>(height)),
               ratio = static_cast<double>(width * height) / static_cast<double>(kScaleResolution * kScaleResolution);
  const std::int64_t multiple = std::min(static_cast<std::int64_t>(std::ceil(ratio)), kMaxSlices);
  if (multiple <= 1) return {0, 0};
  Sides best{1, 1};
  double min_error = std::numeric_limits<double>::infinity();
  for (std::int64_t slices = multiple - 1; slices <= multiple + 1; ++slices) {
    if (slices == 1 || slices > kMaxSlices) continue;
    for (std::int64_t rows = 1; rows <= slices; ++rows) {
      if (slices % rows != 0) continue;
      const std::int64_t columns = slices / rows;
      const double error = std::abs(log_ratio - std::log(static_cast<double>(columns) / static_cast<double>(rows)));
      if (error < min_error || (error == min_error && rows > best.first)) best = {rows, columns};
      min_error = std::min(min_error, error);
    }
  }
  return best;
}

}  // namespace

std::vector<Sides> MiniCpmVConfig::cut(std::int64_t height, std::int64_t width) const {
  const std::int64_t factor = vision.patch_size * merges();
  const auto [rows, columns] = sliced_grid(height, width);
  const auto patches = [&](const Sides& size) {
    return Sides{size.first / vision.patch_size, size.second / vision.patch_size};
  };
  std::vector<Sides> sizes{
      patches(find_best_resize(static_cast<double>(height), static_cast<double>(width), factor, rows == 0))};
  if (rows == 0) return sizes;
  // get_refine_size
  const auto of_slice = [](std::int64_t side, std::int64_t parts) {
    return static_cast<double>(ensure_divide(static_cast<double>(side), parts)) / static_cast<double>(parts);
  };
  const Sides slice = patches(find_best_resize(of_slice(height, rows), of_slice(width, columns), factor, true));
  sizes.insert(sizes.end(), static_cast<std::size_t>(rows * columns), slice);
  return sizes;
}

MiniCpmVConfig read_minicpm_v_config(ConfigReader& reader, const MiniCpmVFamily& family) {
  MiniCpmVConfig c;
  c.family = &family;
  ClipVisionConfig d;
  d.family = &family.vision;
  d.patch_size = 16;
  d.hidden_act = Activation::gelu_tanh;
  ConfigReader vision = reader.object("vision_config"), text = reader.object("text_config");
  c.vision = read_vision_sizes(vision, d);
  const auto check_kernel = [](ConfigReader& its, const char* key) {
    if (!its.has(key)) return;
    const std::vector<std::int64_t> sides = its.integers(key, {1, 64});
    if (sides != std::vector<std::int64_t>{MiniCpmVConfig::kMerge, MiniCpmVConfig::kMerge})
      its.fail_found(key, "inconsistent", "the classes count with [2, 2]: expected that");
  };
  check_kernel(vision, "window_kernel_size");
  vision.ignore({"model_type", "layer_norm_eps", "insert_layer_id"});  // the last is the whole model's
  vision.finish();
  c.text = read_qwen3_5_text(text);
  text.ignore({"model_type"});
  text.finish();
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", family.ties_embeddings);
  c.downsamples_16_times =
      reader.choice("downsample_mode", family.downsamples_16_times, {{"16x", true}, {"4x", false}});
  c.insert_layer_id = reader.integer("insert_layer_id", 6, {-1, 65'536});
  check_kernel(reader, "merge_kernel_size");
  if (reader.integer("merger_times", 1) != 1)
    reader.fail_found("merger_times", "not-modelled", "merging again is not supported yet: expected 1");
  reader.ignore({"image_size", "drop_vision_last_layer", "image_token_id", "video_token_id", "image_start_id",
                 "image_end_id", "slice_start_id", "slice_end_id", "newline_id"});
  if (c.downsamples_16_times && (c.insert_layer_id < 0 || c.insert_layer_id >= c.vision.num_hidden_layers))
    reader.fail_found("insert_layer_id", "inconsistent",
                      "expected one of the tower's " + std::to_string(c.vision.num_hidden_layers) +
                          " layers, from 0 on, as images are downsampled 16 times");
  return c;
}

}  // namespace oometer
