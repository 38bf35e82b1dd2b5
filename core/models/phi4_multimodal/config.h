#pragma once

#include <cstdint>
#include <vector>

#include "models/clip/config.h"
#include "models/kit/text_config.h"

/// transformers 5.23, models/phi4_multimodal/configuration_phi4_multimodal.py: the fields that decide memory.
namespace oometer {

inline constexpr VisionFamily kPhi4Vision{"Phi4MultimodalVisionModel",
                                          "Phi4MultimodalVisionEmbeddings",
                                          "Phi4MultimodalVisionEncoder",
                                          "Phi4MultimodalVisionEncoderLayer",
                                          "Phi4MultimodalVisionAttention",
                                          "Phi4MultimodalVisionMLP",
                                          false,
                                          false,
                                          true};

/// class Phi4MultimodalAudioConfig. Sizes are elements.
struct Phi4AudioConfig {
  std::int64_t hidden_size = 1024;
  std::int64_t intermediate_size = 1536;
  std::int64_t num_blocks = 24;
  std::int64_t num_attention_heads = 16;
  Activation activation = Activation::silu, conv_activation = Activation::silu, conv_glu_type = Activation::silu,
             nemo_activation = Activation::relu;
  double dropout_rate = 0;
  std::int64_t depthwise_multiplier = 1;
  std::int64_t kernel_size = 3;
  std::int64_t input_size = 80;
  std::int64_t convolutions = 3;  ///< each halves the frames: log2(time_reduction)
  std::int64_t num_buckets = 2000;
  bool bias_symmetric = false;
  std::int64_t nemo_conv_channels = 1024;
  std::int64_t nemo_final_size = 10;

  std::int64_t time_reduction() const { return std::int64_t{1} << convolutions; }
  /// Frames of an audio without padding (Phi4MultimodalFeatureExtractor): windows of 25 ms, one each 10 ms.
  static std::int64_t frames(double seconds);
  std::int64_t tokens(double seconds) const;
  bool operator==(const Phi4AudioConfig&) const = default;
};

/// How an image is cut (Phi4MultimodalImageProcessor.dynamic_preprocess).
struct Phi4Crops {
  std::int64_t rows = 1, columns = 1;                ///< of crops, beside which there is the whole image
  std::int64_t patch_rows = 0, patch_columns = 0;    ///< of all crops together that are no padding
  std::int64_t useful_height = 0, useful_width = 0;  ///< the same of features, of which each is of four patches
  std::int64_t tokens = 0;

  std::int64_t crops() const { return rows * columns; }
};

/// class Phi4MultimodalConfig.
struct Phi4Config {
  TextConfig text;
  ClipVisionConfig vision;
  Phi4AudioConfig audio;
  std::int64_t feature_layer = -2;  ///< of the tower's hidden states
  bool is_longrope = false;

  std::int64_t patches() const { return vision.image_size / vision.patch_size; }  ///< of a side
  Phi4Crops cut(std::int64_t height, std::int64_t width) const;
  bool operator==(const Phi4Config&) const = default;
};

Phi4Config read_phi4_config(ConfigReader& reader);

}  // namespace oometer
