#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "job/read.h"
#include "job/settings/fields.h"
#include "models/family.h"

namespace oometer {

namespace {

/// Of a micro-batch: as many as it may have samples.
constexpr std::int64_t kMostImages = 1 << 20;

/// Keys of images, audio and targets that this model's are not described by.
void leave_out_others(ConfigReader& reader, const ModelTraits& traits) {
  for (const char* key :
       {"image_size", "objects_per_image", "tiles", "grid_thw", "frames", "video", "min_pixels", "max_pixels"})
    if (reader.has(key) && !traits.reads_images_by(key))
      reader.fail_found(key, "inconsistent", traits.class_name + " has no use for it: leave it out");
  if (reader.has("image_sizes") && (!traits.takes_images || traits.max_images == 0))
    reader.fail_found("image_sizes", "inconsistent", traits.class_name + " takes no images: leave it out");
  if (!traits.takes_targets && reader.has("target_length"))
    reader.fail_found("target_length", "inconsistent",
                      traits.class_name + " has no decoder beside an encoder: leave it out");
  for (const char* key : {"audio_seconds", "audios_per_sample"})
    if (traits.max_audios == 0 && reader.has(key))
      reader.fail_found(key, "inconsistent", traits.class_name + " hears nothing: leave it out");
}

/// Of the config's own size, or of any, which the processor cuts into tiles.
void read_tiles(ConfigReader& reader, const ModelConfig& model, DataConfig& data) {
  const ModelTraits& traits = model.traits();
  const bool has_size = reader.has("image_size");
  const std::vector<std::int64_t> size = reader.integers("image_size", {1, 65'536});
  const bool has_images = data.images_per_sample != 0;
  if (has_images) data.image_height = data.image_width = traits.image_size;
  if (has_size && traits.cuts_images) {
    if (size.size() != 2)
      reader.fail_found("image_size", "wrong-type", "expected [height, width] in pixels");
    else if (has_images)
      std::tie(data.image_height, data.image_width) = std::tie(size[0], size[1]);
  } else if (has_size && (size.size() != 2 || size[0] != traits.image_size || size[1] != traits.image_size)) {
    // CLIPVisionEmbeddings.forward refuses other sizes: the processor brings images to the config's own.
    const std::string side = std::to_string(traits.image_size);
    reader.fail_found("image_size", "inconsistent", "expected the config's own, [" + side + ", " + side + "]");
  }
  std::int64_t tiles = 0;
  if (traits.cuts_images) tiles = read_integer(reader, settings::data_section, "tiles").value_or(0);
  const auto count_image = model.family().count_image;
  if (!has_images || !reader.ok() || !count_image) return;
  const ImageCount count = count_image(model.config(), data.image_height, data.image_width, tiles);
  const std::int64_t cut = count_image(model.config(), data.image_height, data.image_width, 0).tiles;
  if (tiles != 0 && tiles != cut && (has_size || count.tiles != tiles))
    reader.fail_found("tiles", "inconsistent",
                      "expected " + std::to_string(cut) + ", into which the processor cuts an image of image_size");
  data.tiles = count.tiles;
  data.tokens_per_image = count.tokens;
}

std::string seconds(double value) {
  std::string text = std::to_string(value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

void read_audio(ConfigReader& reader, const ModelConfig& model, DataConfig& data) {
  const ModelTraits& traits = model.traits();
  data.audios_per_sample = read_integer(reader, settings::data_section, "audios_per_sample").value_or(1);
  if (data.audios_per_sample < traits.min_audios || data.audios_per_sample > traits.max_audios)
    reader.fail_found("audios_per_sample", "inconsistent",
                      "expected " + std::to_string(traits.min_audios) +
                          (traits.max_audios == traits.min_audios ? "" : " to " + std::to_string(traits.max_audios)));
  const double length = reader.number("audio_seconds", traits.usual_audio_seconds, 0.02, 86'400);
  if (data.audios_per_sample == 0 || !reader.ok()) return;
  data.audio_seconds = length;
  if (traits.max_audio_seconds != 0 && length > traits.max_audio_seconds)
    reader.fail_found("audio_seconds", "inconsistent",
                      "expected at most " + seconds(traits.max_audio_seconds) + ": " + traits.audio_why);
  else
    data.tokens_per_audio = model.family().count_audio(model.config(), length).tokens;
}

/// A file for one batch size: its own is the default, and no other fits.
void read_fixed_batch(ConfigReader& reader, std::int64_t batch, DataConfig& data) {
  if (!reader.has("micro_batch_size")) data.micro_batch_size = batch;
  if (data.micro_batch_size != batch)
    reader.fail_found(
        "micro_batch_size", "inconsistent",
        "expected " + std::to_string(batch) + ", the number of samples with which the graph was recorded");
}

}  // namespace

void read_images(ConfigReader& reader, const ModelConfig& model, DataConfig& data) {
  if (const auto read = model.family().read_images)
    read(reader, model.config(), data);
  else
    read_tiles(reader, model, data);
}

std::pair<DataConfig, SamplesConfig> read_data(ConfigReader reader, const ModelConfig& model, bool infers,
                                               std::int64_t usual_length, std::optional<std::int64_t> max_length) {
  const ModelTraits& traits = model.traits();
  const std::string& who = traits.class_name;
  DataConfig data;
  read_fields(reader, settings::data_section, data);
  const auto length = read_integer(reader, settings::data_section, "sequence_length");
  const auto target_length = read_integer(reader, settings::data_section, "target_length");
  if (length && !traits.takes_text)
    reader.fail_found("sequence_length", "inconsistent", who + " reads no text: leave it out");
  for (const auto& [key, tokens] : {std::pair{"sequence_length", length}, std::pair{"target_length", target_length}})
    if (tokens && traits.takes_text && traits.max_sequence_length != 0 && *tokens > traits.max_sequence_length)
      reader.fail_found(
          key, "inconsistent",
          "expected at most " + std::to_string(traits.max_sequence_length) + " (max_position_embeddings)");
  if (usual_length == 0) usual_length = traits.default_sequence_length;
  data.sequence_length = length.value_or(usual_length);
  if (!traits.takes_text) data.sequence_length = 0;
  if (traits.takes_targets) data.target_length = target_length.value_or(data.sequence_length);

  data.images_per_sample =
      read_integer(reader, settings::data_section, "images_per_sample").value_or(traits.usual_images(infers));
  const bool has_sizes = traits.takes_images && reader.has("image_sizes");
  if (has_sizes) data.images_per_sample = count_image_sizes(reader);
  if (!traits.takes_images && data.images_per_sample != 0) {
    reader.fail_found("images_per_sample", "inconsistent", who + " takes no images: leave it out");
  } else if (infers && !traits.prompts_take_images && data.images_per_sample != 0) {
    reader.fail_found("images_per_sample", "not-modelled",
                      "images in prompts of " + who + " are not supported yet: expected 0");
  } else if (data.images_per_sample < traits.min_images || data.images_per_sample > traits.max_images) {
    const bool is_bounded = traits.max_images < ModelTraits{}.max_images;
    reader.fail_found(has_sizes ? "image_sizes" : "images_per_sample", "inconsistent",
                      "expected " + std::to_string(traits.min_images) +
                          (traits.max_images == traits.min_images ? ""
                           : is_bounded                           ? " to " + std::to_string(traits.max_images)
                                                                  : " or more") +
                          (has_sizes ? " of them: " : ": ") + traits.images_why);
  } else if (data.images() > kMostImages) {
    reader.fail_found("images_per_sample", "out-of-range",
                      "a micro-batch may hold at most " + std::to_string(kMostImages) + " images");
  }

  leave_out_others(reader, traits);
  data.routing = read_routing(reader, traits);
  if (has_sizes)
    read_image_sizes(reader, model, data);
  else if (traits.takes_images)
    read_images(reader, model, data);
  if (traits.max_audios != 0) read_audio(reader, model, data);
  if (traits.fixed_batch != 0) read_fixed_batch(reader, traits.fixed_batch, data);
  SamplesConfig samples = read_samples(reader, traits);
  samples.max_length = max_length;
  if (samples.are_given()) take_sizes(reader, samples, length, usual_length, data);
  if (const std::int64_t audio_tokens = checked_product(data.audios_per_sample, data.tokens_per_audio);
      data.sequence_length < audio_tokens)
    reader.fail(reader.has("sequence_length") ? "sequence_length" : "audio_seconds", "inconsistent",
                "found a sequence of " + std::to_string(data.sequence_length) + " tokens; it must hold the " +
                    std::to_string(audio_tokens) + " tokens that its audio takes");
  const std::int64_t image_tokens = data.tokens_of_images();
  if (const std::int64_t heard = checked_product(data.audios_per_sample, data.tokens_per_audio);
      image_tokens != 0 && heard != 0 && data.sequence_length < image_tokens + heard) {
    reader.fail(reader.has("sequence_length") ? "sequence_length" : "audio_seconds", "inconsistent",
                "found a sequence of " + std::to_string(data.sequence_length) + " tokens; it must hold the " +
                    std::to_string(image_tokens) + " tokens of its images and the " + std::to_string(heard) +
                    " of its audio");
  } else if (data.sequence_length < image_tokens) {
    const bool one = data.images_per_sample == 1;
    const std::string need =
        std::to_string(image_tokens) + " tokens of " +
        (data.video ? (one ? "its video" : std::to_string(data.images_per_sample) + " videos")
         : one      ? "its image"
                    : std::to_string(data.images_per_sample) + " images" +
                     (data.sample_images.empty() ? " of " + std::to_string(data.tokens_per_image) : ""));
    const std::string has = std::to_string(data.sequence_length);
    reader.fail(reader.has("sequence_length") ? "sequence_length" : "images_per_sample", "inconsistent",
                "found a sequence of " + has + " tokens; it must hold the " + need);
  }
  reader.finish();
  return {std::move(data), std::move(samples)};
}

}  // namespace oometer
