#pragma once

#include <memory>

#include "models/llama/config.h"
#include "models/model.h"
#include "models/whisper/whisper.h"

namespace oometer {

/// transformers 5.23, models/audioflamingo3/configuration_audioflamingo3.py, class AudioFlamingo3Config: Qwen2-Audio's
/// encoder, and a language model.
struct AudioFlamingo3Config {
  WhisperConfig audio;
  LlamaConfig text;
  Activation projector_hidden_act = Activation::gelu;
  bool projector_bias = true;

  /// The processor cuts an audio into windows of the encoder, each a row; the last one is padded
  /// (AudioFlamingo3Processor._process_audio).
  std::int64_t windows(double seconds) const;
  /// Frames of 10 ms of an audio, without padding.
  std::int64_t frames(double seconds) const;
  /// Of the last window: its states that are no padding.
  std::int64_t last_states(double seconds) const;
  /// _get_audio_token_length: two states make a token.
  std::int64_t tokens(double seconds) const;

  bool operator==(const AudioFlamingo3Config&) const = default;
};

/// AudioFlamingo3ForConditionalGeneration (models/audioflamingo3/modeling_audioflamingo3.py).
std::unique_ptr<Model> build_audioflamingo3(Context& context, const AudioFlamingo3Config& config,
                                            const DataConfig& data, const ModelOptions& options);

}  // namespace oometer
