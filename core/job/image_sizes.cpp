#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "job/notes.h"
#include "job/read.h"
#include "models/family.h"

namespace oometer {

namespace {

using nlohmann::json;

constexpr const char* kImageSizes = "image_sizes";

/// Keys that say the same of all images.
void leave_out_one_size(ConfigReader& reader) {
  for (const char* key : {"image_size", "tiles", "grid_thw", "frames", "video"})
    if (reader.has(key)) reader.fail_found(key, "inconsistent", "image_sizes says it: leave one of them out");
}

/// One image, as if the samples had no other.
ImageShape read_one(ConfigReader& reader, const json& size, const ModelConfig& model, const DataConfig& data) {
  json alone{{"image_size", size}};
  for (const char* key : {"min_pixels", "max_pixels"})
    if (reader.has(key)) alone[key] = *reader.find(key);
  Findings findings;
  ConfigReader own(&alone, reader.pointer(), reader.mode(), findings);
  DataConfig of_it = data;
  read_images(own, model, of_it);
  if (findings.error && reader.ok()) reader.findings().error = std::move(findings.error);
  return of_it;
}

bool is_of_fixed_size(const ModelConfig& model) { return !model.traits().cuts_images && !model.family().read_images; }

}  // namespace

[[gnu::noinline]] std::int64_t count_image_sizes(ConfigReader& reader) {
  const json& sizes = *reader.find(kImageSizes);
  const auto is_size = [](const json& size) {
    const auto is_side = [](const json& side) { return side.is_number_integer() && side > 0 && side <= 65'536; };
    return size.is_array() && size.size() == 2 && is_side(size[0]) && is_side(size[1]);
  };
  if (!sizes.is_array() || sizes.empty() || !std::all_of(sizes.begin(), sizes.end(), is_size))
    reader.fail_found(kImageSizes, "wrong-type",
                      "expected [height, width] in pixels, 1 to 65536, of each image of a sample: [[672, 448], ...]");
  const std::int64_t images = std::max<std::int64_t>(std::ssize(sizes), 1);
  if (reader.has("images_per_sample") && *reader.find("images_per_sample") != images)
    reader.fail_found("images_per_sample", "inconsistent",
                      "expected " + std::to_string(images) + ", as many as image_sizes has, or nothing");
  return images;
}

[[gnu::noinline]] void read_image_sizes(ConfigReader& reader, const ModelConfig& model, DataConfig& data) {
  leave_out_one_size(reader);
  if (!reader.ok()) return;
  if (is_of_fixed_size(model)) return read_images(reader, model, data);  // its processor brings all to that
  std::vector<ImageShape> images;
  std::size_t largest = 0;
  for (const json& size : *reader.find(kImageSizes)) {
    images.push_back(read_one(reader, size, model, data));
    if (!reader.ok()) {
      reader.findings().error->pointer = reader.pointer_to(kImageSizes) + "/" + std::to_string(images.size() - 1);
      return;
    }
    const ImageShape &its = images.back(), &most = images[largest];
    if (std::pair(its.tokens_per_image, its.patches()) > std::pair(most.tokens_per_image, most.patches()))
      largest = images.size() - 1;
  }
  static_cast<ImageShape&>(data) = images[largest];
  if (std::count(images.begin(), images.end(), images.front()) == std::ssize(images)) return;
  if (!model.traits().reads_images_by(kImageSizes))
    reader.fail_found(kImageSizes, "not-modelled",
                      "images of different sizes in a sample of " + model.traits().class_name +
                          " are not supported yet: expected equal sizes");
  data.sample_images = std::move(images);
}

[[gnu::noinline]] std::string describe_images(const DataConfig& data) {
  const auto size = [](const ImageShape& image) {
    return std::to_string(image.image_height) + " x " + std::to_string(image.image_width);
  };
  const auto tokens = [](std::int64_t count) { return std::to_string(count) + " tokens"; };

  if (data.video)
    return "each video is " + std::to_string(data.grid_t) + " grids of frames of " + size(data) + " pixels, " +
           tokens(data.tokens_per_image);
  std::string words = "the images of a sample are ";
  for (std::size_t i = 0; i < data.sample_images.size(); ++i) {
    const ImageShape& image = data.sample_images[i];
    words += (i == 0                               ? ""
              : i + 1 == data.sample_images.size() ? " and "
                                                   : ", ") +
             size(image) + " pixels (" + (image.tiles > 1 ? std::to_string(image.tiles) + " tiles, " : "") +
             tokens(image.tokens_per_image) + ")";
  }
  return words + ", " + tokens(data.tokens_of_images()) + " together";
}

[[gnu::noinline]] void write_video(const Video& video, json& out) {
  out["video"] = {{"seconds", video.seconds}, {"fps", video.fps}, {"size", {video.height, video.width}}};
  if (video.min_pixels) out["min_pixels"] = *video.min_pixels;
  if (video.max_pixels) out["max_pixels"] = *video.max_pixels;
}

[[gnu::noinline]] void write_image_sizes(const DataConfig& data, const ModelTraits& traits, json& out) {
  std::int64_t most = 1;
  for (const ImageShape& image : data.sample_images) {
    out[kImageSizes].push_back({image.image_height, image.image_width});
    most = std::max(most, image.image_height * image.image_width);
  }
  if (!traits.reads_images_by("max_pixels")) return;
  out["min_pixels"] = 1;  // they have been resized within the limits
  out["max_pixels"] = most;
}

}  // namespace oometer
