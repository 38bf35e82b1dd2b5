#pragma once

#include <memory>

#include "models/llama/config.h"
#include "models/model.h"
#include "models/whisper/whisper.h"

namespace oometer {

/// transformers 5.23, models/voxtral/configuration_voxtral.py, class VoxtralConfig: Whisper's encoder, four states of
/// which make a token, and a language model.
struct VoxtralConfig {
  WhisperConfig audio;
  LlamaConfig text;
  Activation projector_hidden_act = Activation::gelu;

  /// Of a window of the encoder.
  std::int64_t tokens_per_window() const {
    return audio.max_source_positions * audio.hidden_size / audio.intermediate_size;
  }
  /// The processor cuts audio into windows, the last one padded (VoxtralProcessor._retrieve_input_features).
  std::int64_t windows(double seconds) const;

  bool operator==(const VoxtralConfig&) const = default;
};

/// class VoxtralEncoderConfig: Whisper's fields, most of them under the usual names.
WhisperConfig read_voxtral_encoder(ConfigReader& reader);

/// VoxtralMultiModalProjector, and AudioFlamingo3's, which has biases.
struct VoxtralMultiModalProjector {
  VoxtralMultiModalProjector() = default;
  VoxtralMultiModalProjector(const Builder& builder, std::int64_t in_features, std::int64_t out_features, bool bias,
                             Activation activation);
  Tensor operator()(const Tensor& audio_features) const;

  Linear linear_1, linear_2;
  Activation act = Activation::gelu;
  ModuleId module = 0;
};

/// VoxtralForConditionalGeneration (models/voxtral/modeling_voxtral.py).
std::unique_ptr<Model> build_voxtral(Context& context, const VoxtralConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
