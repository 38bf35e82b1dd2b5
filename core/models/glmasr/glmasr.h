#pragma once

#include <cstdint>
#include <memory>

#include "models/llama/config.h"
#include "models/model.h"

namespace oometer {

/// transformers 5.23, models/glmasr/configuration_glmasr.py, class GlmAsrEncoderConfig: the fields that decide memory.
struct GlmAsrEncoderConfig {
  std::int64_t hidden_size = 1280;
  std::int64_t intermediate_size = 5120;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 20;
  std::int64_t num_key_value_heads = 20;
  std::int64_t num_mel_bins = 128;
  std::int64_t max_position_embeddings = 1500;  ///< states of a window
  std::int64_t head_dim = 64;
  std::int64_t rotary_dim = 32;
  Activation hidden_act = Activation::gelu;
  double attention_dropout = 0;

  std::int64_t frames() const { return 2 * max_position_embeddings; }
  double window_seconds() const { return static_cast<double>(frames()) / 100; }
  /// Rows of intermediate_size that a window's states make.
  std::int64_t rows() const { return max_position_embeddings * hidden_size / intermediate_size; }
  bool operator==(const GlmAsrEncoderConfig&) const = default;
};

/// class GlmAsrConfig: that encoder, and a language model.
struct GlmAsrConfig {
  GlmAsrEncoderConfig audio;
  LlamaConfig text;
  Activation projector_hidden_act = Activation::gelu;
  bool tie_word_embeddings = true;

  /// The processor cuts an audio into windows, each a row; the last one is padded (GlmAsrProcessor._process_audio).
  std::int64_t windows(double seconds) const;
  /// Frames of 10 ms of an audio, without padding.
  std::int64_t frames(double seconds) const;
  /// _get_audio_token_length: four states make a token.
  std::int64_t tokens(double seconds) const;

  bool operator==(const GlmAsrConfig&) const = default;
};

/// GlmAsrForConditionalGeneration (models/glmasr/modeling_glmasr.py).
std::unique_ptr<Model> build_glmasr(Context& context, const GlmAsrConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
