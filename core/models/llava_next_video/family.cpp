#include "models/family.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/clip/family.h"
#include "models/kit/videos.h"
#include "models/llava_next_video/llava_next_video.h"
#include "models/siglip/config.h"
#include "models/sizes.h"

namespace oometer {

namespace {

constexpr ModelClass kClasses[] = {{kLlavaNextVideo.model_type, kLlavaNextVideo.class_name},
                                   {kLlavaOnevision.model_type, kLlavaOnevision.class_name}};
constexpr const char* kBlocks[] = {kClipVision.encoder_layer, kSiglipVision.encoder_layer};

LlavaVideoConfig read_onevision(ConfigReader& reader) {
  constexpr const char* kAspect = "vision_aspect_ratio";
  const std::string prefix = "anyres_max_", aspect = reader.text(kAspect, "anyres_max_9");
  std::int64_t most = 0;
  const char* const end = aspect.data() + aspect.size();
  const bool is_known = aspect.starts_with(prefix) && aspect.size() <= prefix.size() + 4 &&
                        std::from_chars(aspect.data() + prefix.size(), end, most).ptr == end;
  if (!is_known || most <= 0) reader.fail_found(kAspect, "wrong-type", "expected anyres_max_N, as anyres_max_9");
  if (!reader.has("image_grid_pinpoints"))
    reader.fail("image_grid_pinpoints", "not-modelled",
                "the class's own list of resolutions is not supported yet: expected a list of [height, width]");
  for (const char* key : {"vision_config", "text_config"})
    if (!reader.has(key))
      reader.fail(key, "not-modelled", "the class's own one is not supported yet: expected an object");
  LlavaVideoConfig c{read_llava_next_config(reader)};
  c.of = &kLlavaOnevision;
  c.max_num_patches = std::max<std::int64_t>(most, 1);
  return c;
}

LlavaVideoConfig read_next_video(ConfigReader& reader) {
  const std::string mode = reader.text("spatial_pool_mode", "average");
  if (mode != "average" && mode != "max")
    reader.fail_found("spatial_pool_mode", "not-modelled",
                      "pooling with weights is not supported yet: expected \"average\" or \"max\"");
  reader.ignore({"spatial_pool_out_channels", "video_seq_length"});
  const std::int64_t stride = reader.integer("spatial_pool_stride", 2, {1, 65'536});
  LlavaVideoConfig c{read_llava_next_config(reader)};
  c.of = &kLlavaNextVideo;
  c.takes_maximum = mode == "max";
  c.spatial_pool_stride = stride;
  return c;
}

FamilyConfig read(ConfigReader& reader, const ModelClass& of, Framework) {
  reader.ignore({"video_token_index", "video_token_id"});
  return &of == &kClasses[1] ? read_onevision(reader) : read_next_video(reader);
}

std::unique_ptr<Model> build(Context& context, const FamilyConfig& config, const DataConfig& data,
                             const ModelOptions& options) {
  return build_llava_video(context, config.as<LlavaVideoConfig>(), data, options);
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<LlavaVideoConfig>();
  ModelTraits t = vision_language_traits(c.of->class_name, c);
  t.set_parts("vision_tower", "multi_modal_projector", "language_model");
  t.allow({Feature::quantization, Feature::image_preferences, Feature::packing});
  t.cuts_images = true;
  t.image_keys.insert(t.image_keys.end(), {"image_sizes", "tiles", "frames", "video"});
  t.default_sequence_length =
      std::max(t.default_sequence_length, c.anyres(c.vision.image_size, c.vision.image_size).tokens);
  if (c.is_onevision()) {
    t.max_images = 1;
    t.images_why = "several images of a sample are brought to one tile each, which is not supported yet";
    t.no_split_modules = {};
  }
  t.oldest_transformers = {5, 23, 0};
  for (const Feature feature : {Feature::fsdp, Feature::headinfer, Feature::quantized_cache, Feature::turn_images})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  if (c.vision.has_head)
    t.refuse(Feature::zero3, "not-modelled",
             "SigLIP's head on shards is not supported yet; expected another strategy, or a vision_config with "
             "\"vision_use_head\": false, as the model needs no head");
  return t;
}

ImageCount count_image(const FamilyConfig& config, std::int64_t height, std::int64_t width, std::int64_t) {
  const LlavaConfig::Anyres anyres = config.as<LlavaVideoConfig>().anyres(height, width);
  return {anyres.tiles(), anyres.tokens};
}

/// Frames that default_sample_indices_fn takes of a film of 30 frames a second; 0: the processor refuses.
std::int64_t sampled_frames(const Video& video) {
  constexpr double kOfFilm = 30;
  const double film = std::nearbyint(video.seconds * kOfFilm), wanted = std::max(1.0, film / kOfFilm * video.fps);
  return wanted < film + 1 ? static_cast<std::int64_t>(wanted) : 0;
}

Video read_video(ConfigReader& reader, const LlavaVideoConfig& c) {
  ConfigReader own = reader.object("video");
  Video video = read_length(own);
  // Frames of any size are brought to the tower's own (size and crop_size of the processor).
  const std::vector<std::int64_t> size = own.integers("size", {1, 65'536});
  if (!size.empty() && size.size() != 2) own.fail_found("size", "wrong-type", "expected [height, width] in pixels");
  video.height = size.size() == 2 ? size[0] : c.vision.image_size;
  video.width = size.size() == 2 ? size[1] : c.vision.image_size;
  own.finish();
  return video;
}

/// A job's videos: `video`, or how many frames of each there are.
void read_videos(ConfigReader& reader, const LlavaVideoConfig& c, DataConfig& data) {
  const char* const key = reader.has("video") ? "video" : "frames";
  for (const char* other : {"image_size", "image_sizes", "tiles", "frames"})
    if (key != std::string(other) && reader.has(other))
      reader.fail_found(other, "inconsistent", std::string(key) + " says it: leave one of them out");
  std::int64_t frames = reader.optional_integer("frames", {1, 1 << 16}).value_or(1);
  if (reader.has("video")) {
    const Video video = read_video(reader, c);
    if (!reader.ok()) return;
    frames = sampled_frames(video);
    if (frames == 0)
      reader.fail("video", "inconsistent",
                  "more frames are sampled than the video has at 30 a second: expected an fps of at most 30");
    data.video = video;
  }
  if (!reader.ok()) return;
  // LlavaNextVideoProcessor.replace_video_token; the class's own check compares with what the pooler leaves.
  const std::int64_t side = c.patches_of_side(), expected = side * side / 4, pooled = c.pooled_side() * c.pooled_side();
  if (!c.is_onevision() && expected != pooled)
    reader.fail_found(key, "inconsistent",
                      "of a frame the processor makes " + std::to_string(expected) +
                          " tokens, and the model's pooling " + std::to_string(pooled) +
                          ": transformers refuses videos of this config");
  if (data.images_per_sample == 0) {
    data.video.reset();
    return;
  }
  if (data.images_per_sample != 1)
    reader.fail(reader.has("images_per_sample") ? "images_per_sample" : key, "not-modelled",
                "several videos in a sample are not supported yet: expected 1");
  data.grid_t = frames;
  data.image_height = data.image_width = c.vision.image_size;
  const ImageCount count = {c.anyres(c.vision.image_size, c.vision.image_size).tiles(), c.tokens_per_video(frames)};
  data.tiles = count.tiles;
  data.tokens_per_image = count.tokens;
}

void read_images(ConfigReader& reader, const FamilyConfig& config, DataConfig& data) {
  const auto& c = config.as<LlavaVideoConfig>();
  const bool has_video = reader.has("video");
  if (has_video || reader.optional_integer("frames", {1, 1 << 16}).value_or(1) > 1) return read_videos(reader, c, data);
  const std::vector<std::int64_t> size = reader.integers("image_size", {1, 65'536});
  const std::int64_t tiles = reader.optional_integer("tiles", {1, 4096}).value_or(0);
  const bool has_images = data.images_per_sample != 0;
  if (has_images) data.image_height = data.image_width = c.vision.image_size;
  if (!size.empty() && size.size() != 2)
    reader.fail_found("image_size", "wrong-type", "expected [height, width] in pixels");
  else if (!size.empty() && has_images)
    std::tie(data.image_height, data.image_width) = std::tie(size[0], size[1]);
  if (!has_images || !reader.ok()) return;
  const ImageCount count = count_image(config, data.image_height, data.image_width, 0);
  if (tiles != 0 && tiles != count.tiles)
    reader.fail_found(
        "tiles", "inconsistent",
        "expected " + std::to_string(count.tiles) + ", into which the processor cuts an image of image_size");
  data.tiles = count.tiles;
  data.tokens_per_image = count.tokens;
}

double largest_tensor(const FamilyConfig& config, const DataConfig& data) {
  const auto& c = config.as<LlavaVideoConfig>();
  const std::int64_t widest = std::max(c.projector_input_size(), c.text.hidden_size),
                     seen = data.grid_t != 0 ? checked_product(data.images(), data.grid_t) : data.all_tiles();
  return std::max({largest_tensor_of(c, data), bytes_of({c.text.hidden_size, widest}),
                   bytes_of({seen, c.vision.num_positions(), widest})});
}

}  // namespace

namespace family {
extern const Family llava_next_video{.classes = kClasses,
                                     .blocks = kBlocks,
                                     .read = read,
                                     .build = build,
                                     .traits = traits,
                                     .largest_tensor = largest_tensor,
                                     .count_image = count_image,
                                     .read_images = read_images};
}  // namespace family

}  // namespace oometer
