#include "models/phi4_multimodal/config.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <utility>

#include "config/reader.h"
#include "models/phi3/phi3.h"
#include "rounding.h"

namespace oometer {

std::int64_t Phi4AudioConfig::frames(double seconds) {
  constexpr std::int64_t kWindow = 400, kHop = 160;  // samples, at 16 kHz
  const auto samples = static_cast<std::int64_t>(std::llround(seconds * 16'000));
  return std::max<std::int64_t>(samples - kWindow, 0) / kHop + 1;
}

std::int64_t Phi4AudioConfig::tokens(double seconds) const { return divide_up(frames(seconds), time_reduction()); }

namespace {

/// find_closest_aspect_ratio, of at most 36 crops: columns and rows.
std::pair<std::int64_t, std::int64_t> closest_ratio(std::int64_t height, std::int64_t width, std::int64_t side) {
  constexpr std::int64_t kMost = 36;
  const double aspect_ratio = static_cast<double>(width) / static_cast<double>(height);
  const double area = static_cast<double>(width) * static_cast<double>(height), edge = static_cast<double>(side);
  double best_difference = std::numeric_limits<double>::infinity();
  std::pair<std::int64_t, std::int64_t> best{1, 1};
  for (std::int64_t crops = 1; crops <= kMost; ++crops)
    for (std::int64_t columns = 1; columns <= crops; ++columns) {
      if (crops % columns != 0) continue;
      const std::int64_t rows = crops / columns;
      const double difference = std::abs(aspect_ratio - static_cast<double>(columns) / static_cast<double>(rows));
      if (difference < best_difference ||
          (difference == best_difference && area > 0.5 * edge * edge * static_cast<double>(crops)))
        best = {columns, rows};
      best_difference = std::min(best_difference, difference);
    }
  return best;
}

}  // namespace

Phi4Crops Phi4Config::cut(std::int64_t height, std::int64_t width) const {
  constexpr std::int64_t kMost = 36;
  const std::int64_t side = vision.image_size, patch = vision.patch_size;
  Phi4Crops c;
  c.rows = divide_up(height, side);
  c.columns = divide_up(width, side);
  if (c.rows * c.columns > kMost) std::tie(c.columns, c.rows) = closest_ratio(height, width, side);
  const double ratio_width = static_cast<double>(side * c.columns) / static_cast<double>(width),
               ratio_height = static_cast<double>(side * c.rows) / static_cast<double>(height);
  std::int64_t padding_height = 0, padding_width = 0;
  if (ratio_width < ratio_height)
    padding_height = side * c.rows - static_cast<std::int64_t>(static_cast<double>(height) * ratio_width);
  else
    padding_width = side * c.columns - static_cast<std::int64_t>(static_cast<double>(width) * ratio_height);
  c.patch_rows = patches() * c.rows - padding_height / patch;
  c.patch_columns = patches() * c.columns - padding_width / patch;
  c.useful_height = divide_up(c.patch_rows, std::int64_t{2});
  c.useful_width = divide_up(c.patch_columns, std::int64_t{2});
  const std::int64_t cells = patches() / 2;
  c.tokens = cells * (cells + 1) + 1 + checked_product(c.useful_height, c.useful_width + 1);
  return c;
}

namespace {

ClipVisionConfig read_vision(ConfigReader& reader, std::int64_t& feature_layer) {
  ClipVisionConfig defaults;
  defaults.family = &kPhi4Vision;
  defaults.hidden_size = 1152;
  defaults.intermediate_size = 4304;
  defaults.num_hidden_layers = 27;
  defaults.num_attention_heads = 16;
  defaults.image_size = 448;
  defaults.patch_size = 14;
  defaults.hidden_act = Activation::gelu_tanh;
  ClipVisionConfig c = read_vision_sizes(reader, defaults);
  c.has_head = true;
  const std::int64_t layers = c.num_hidden_layers;
  feature_layer = reader.integer("feature_layer", -2, {-layers - 1, layers});
  if (reader.integer("crop_size", 448) != c.image_size)
    reader.fail(reader.has("crop_size") ? "crop_size" : "image_size", "not-modelled",
                "crops of another size than the tower's images are not supported yet: expected crop_size and "
                "image_size to be the same");
  if (c.image_size / c.patch_size % 2 != 0)
    reader.fail_found("image_size", "not-modelled",
                      "an odd number of patches a side is not supported yet: expected an even one");
  if (feature_layer == 0 || feature_layer == -layers - 1)
    reader.fail_found("feature_layer", "not-modelled",
                      "features from before the first layer are not supported yet: expected another one");
  reader.ignore({"model_type", "layer_norm_eps", "image_token_id", "initializer_range"});
  return c;
}

Phi4AudioConfig read_audio(ConfigReader& reader) {
  Phi4AudioConfig c;
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.intermediate_size = reader.integer("intermediate_size", c.intermediate_size);
  c.num_blocks = reader.integer("num_blocks", c.num_blocks, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", c.num_attention_heads);
  c.activation = reader.activation("activation", c.activation);
  c.conv_activation = reader.activation("conv_activation", c.conv_activation);
  c.conv_glu_type = reader.activation("conv_glu_type", c.conv_glu_type);
  c.nemo_activation = reader.activation("nemo_activation", c.nemo_activation);
  c.dropout_rate = reader.number("dropout_rate", 0, 0, 1);
  c.depthwise_multiplier = reader.integer("depthwise_multiplier", 1);
  c.kernel_size = reader.integer("kernel_size", c.kernel_size, {1, 1024});
  c.input_size = reader.integer("input_size", c.input_size);
  c.nemo_conv_channels = reader.integer("nemo_conv_channels", c.nemo_conv_channels);
  c.bias_symmetric = reader.boolean("bias_symmetric", false);
  c.num_buckets = reader.integer("bias_max_distance", 1000) * (c.bias_symmetric ? 1 : 2);
  const std::int64_t reduction = reader.integer("time_reduction", 8, {2, 1024});
  for (c.convolutions = 1; c.time_reduction() < reduction;) ++c.convolutions;
  if (c.time_reduction() != reduction)
    reader.fail_found("time_reduction", "not-modelled", "expected a power of 2; others are not supported yet");
  c.nemo_final_size = c.input_size;
  for (std::int64_t i = 0; i < c.convolutions; ++i) c.nemo_final_size = (c.nemo_final_size - 1) / 2 + 1;
  if (c.hidden_size % c.num_attention_heads != 0)
    reader.fail_found("hidden_size", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  for (const char* key : {"ext_pw_out_channel", "depthwise_separable_out_channel"})
    if (reader.integer(key, 1024) != c.hidden_size)
      reader.fail(reader.has(key) ? key : "hidden_size", "inconsistent",
                  std::string("expected ") + key +
                      " (1024 unless the config says another) to be the hidden_size: the " + "layers add both");
  if (reader.integer("downsample_rate", 1) != 1)
    reader.fail_found("downsample_rate", "inconsistent", "expected 1: what projects features takes one state each");
  if (c.nemo_conv_channels < 2)
    reader.fail_found("nemo_conv_channels", "not-modelled", "this is not supported yet: expected 2 or more");
  reader.ignore({"model_type", "chunk_size", "left_chunk", "initializer_range", "audio_token_id", "feature_layer"});
  return c;
}

constexpr LlamaClassNames kNames{"Phi4MultimodalForCausalLM",    "Phi4MultimodalModel", "Phi4MultimodalDecoderLayer",
                                 "Phi4MultimodalAttention",      "Phi4MultimodalMLP",   "Phi4MultimodalRMSNorm",
                                 "Phi4MultimodalRotaryEmbedding"};

bool reads_longrope(ConfigReader& reader) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (!reader.is_object(key)) continue;
    ConfigReader rope = reader.object(key);
    return rope.text("rope_type", rope.text("type", "default")) != "default";
  }
  return false;
}

}  // namespace

Phi4Config read_phi4_config(ConfigReader& reader) {
  Phi4Config c;
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 200'064;
  d.hidden_size = 3072;
  d.intermediate_size = 8192;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  d.has_pad_token = true;
  c.text = read_phi3_sizes(reader, d);
  c.text.embedding_dropout = reader.number("embd_pdrop", 0, 0, 1);
  c.is_longrope = reads_longrope(reader);
  ConfigReader vision = reader.object("vision_config"), audio = reader.object("audio_config");
  c.vision = read_vision(vision, c.feature_layer);
  vision.finish();
  c.audio = read_audio(audio);
  audio.finish();
  if (!reader.has("pad_token_id") && c.text.vocab_size <= 199'999)
    reader.fail("pad_token_id", "missing", "found none; the class's own one, 199999, is not in the vocabulary");
  reader.ignore({"original_max_position_embeddings"});
  return c;
}

}  // namespace oometer
