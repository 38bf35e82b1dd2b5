#pragma once

#include <memory>

#include "models/llama/config.h"
#include "models/model.h"
#include "models/whisper/whisper.h"

namespace oometer {

/// transformers 5.23, models/qwen2_audio/configuration_qwen2_audio.py, class Qwen2AudioConfig: Whisper's encoder, whose
/// states are averaged in pairs, and a language model.
struct Qwen2AudioConfig {
  WhisperConfig audio;
  LlamaConfig text;

  /// Frames of 10 ms of an audio, of which the extractor gives as many as the encoder's window has
  /// (WhisperFeatureExtractor).
  std::int64_t frames(double seconds) const;
  /// _get_feat_extract_output_lengths: states that are no padding, and tokens.
  std::int64_t states(double seconds) const { return (frames(seconds) - 1) / 2 + 1; }
  std::int64_t tokens(double seconds) const { return states(seconds) < 2 ? 0 : (states(seconds) - 2) / 2 + 1; }

  bool operator==(const Qwen2AudioConfig&) const = default;
};

/// Qwen2AudioForConditionalGeneration (models/qwen2_audio/modeling_qwen2_audio.py).
std::unique_ptr<Model> build_qwen2_audio(Context& context, const Qwen2AudioConfig& config, const DataConfig& data,
                                         const ModelOptions& options);

}  // namespace oometer
