#pragma once

#include <cstdint>
#include <vector>

#include "models/kit/qformer.h"
#include "models/kit/text_config.h"

/// transformers 5.23, models/granite_speech/configuration_granite_speech.py: the fields that decide memory.
namespace oometer {

/// What the classes of Granite Speech are called, and of Granite Speech Plus.
struct GraniteSpeechNames {
  const char *conditional_generation, *model, *encoder, *block, *attention, *feed_forward, *conv_module,
      *depthwise_conv, *projector;
  bool joins_layers = false;  ///< cat_hidden_layers
};
inline constexpr GraniteSpeechNames kGraniteSpeech{"GraniteSpeechForConditionalGeneration",
                                                   "GraniteSpeechModel",
                                                   "GraniteSpeechCTCEncoder",
                                                   "GraniteSpeechConformerBlock",
                                                   "GraniteSpeechConformerAttention",
                                                   "GraniteSpeechConformerFeedForward",
                                                   "GraniteSpeechConformerConvModule",
                                                   "GraniteSpeechConformerDepthWiseConv1d",
                                                   "GraniteSpeechEncoderProjector"};
inline constexpr GraniteSpeechNames kGraniteSpeechPlus{"GraniteSpeechPlusForConditionalGeneration",
                                                       "GraniteSpeechPlusModel",
                                                       "GraniteSpeechPlusCTCEncoder",
                                                       "GraniteSpeechPlusConformerBlock",
                                                       "GraniteSpeechPlusConformerAttention",
                                                       "GraniteSpeechPlusConformerFeedForward",
                                                       "GraniteSpeechPlusConformerConvModule",
                                                       "GraniteSpeechPlusConformerDepthWiseConv1d",
                                                       "GraniteSpeechPlusEncoderProjector",
                                                       true};

/// class GraniteSpeechEncoderConfig. Sizes are elements.
struct GraniteSpeechEncoderConfig {
  std::int64_t input_dim = 160;
  std::int64_t num_layers = 10;
  std::int64_t hidden_dim = 1024;
  std::int64_t feedforward_mult = 4;
  std::int64_t num_heads = 8;
  std::int64_t dim_head = 128;
  std::int64_t output_dim = 42;
  std::int64_t context_size = 200;
  std::int64_t max_pos_emb = 512;
  std::int64_t conv_kernel_size = 15;
  std::int64_t conv_expansion_factor = 2;
  double dropout = 0.1;
  std::vector<std::int64_t> cat_hidden_layers;

  bool operator==(const GraniteSpeechEncoderConfig&) const = default;
};

/// class GraniteSpeechConfig.
struct GraniteSpeechConfig {
  const GraniteSpeechNames* names = &kGraniteSpeech;
  GraniteSpeechEncoderConfig encoder;
  QFormerConfig projector;
  TextConfig text;
  std::int64_t downsample_rate = 5, window_size = 15;
  bool tie_word_embeddings = true;

  /// States of the encoder, each of two frames of 10 ms (GraniteSpeechFeatureExtractor).
  static std::int64_t states(double seconds);
  std::int64_t windows(double seconds) const;
  std::int64_t queries() const { return window_size / downsample_rate; }  ///< of a window
  std::int64_t tokens(double seconds) const { return windows(seconds) * queries(); }
  bool operator==(const GraniteSpeechConfig&) const = default;
};

}  // namespace oometer
