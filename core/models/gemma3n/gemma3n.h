#pragma once

#include <memory>
#include <utility>

#include "models/gemma3n_text/config.h"
#include "models/model.h"

namespace oometer {

/// transformers 5.23, models/gemma3n/configuration_gemma3n.py, class Gemma3nAudioConfig: what decides its parameters.
struct Gemma3nAudioConfig {
  std::int64_t vocab_size = 128;
  std::int64_t input_feat_size = 128;
  std::int64_t hidden_size = 1536;
  std::int64_t conf_attention_chunk_size = 12;
  std::int64_t conf_attention_context_left = 13;
  std::int64_t conf_attention_context_right = 0;
  std::int64_t conf_num_attention_heads = 8;
  std::int64_t conf_num_hidden_layers = 12;
  std::int64_t conf_conv_kernel_size = 5;
  std::pair<std::int64_t, std::int64_t> sscp_conv_channel_size{128, 32};

  bool operator==(const Gemma3nAudioConfig&) const = default;
};

/// class Gemma3nConfig: MobileNetV5, Gemma 3n's text model, and an encoder that nothing is played to.
struct Gemma3nConfig {
  Gemma3nTextConfig text;
  Gemma3nAudioConfig audio;
  std::int64_t vision_vocab_size = 128;
  bool tie_word_embeddings = true;

  bool operator==(const Gemma3nConfig&) const = default;
};

/// Gemma3nAudioEncoder: its parameters.
void make_gemma3n_audio(const Builder& builder, const Gemma3nAudioConfig& config);

/// Gemma3nForConditionalGeneration (models/gemma3n/modeling_gemma3n.py).
std::unique_ptr<Model> build_gemma3n(Context& context, const Gemma3nConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
