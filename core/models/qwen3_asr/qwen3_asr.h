#pragma once

#include <memory>

#include "models/kit/audio_chunks.h"
#include "models/llama/config.h"
#include "models/model.h"
#include "models/whisper/whisper.h"

namespace oometer {

/// transformers 5.23, models/qwen3_asr/configuration_qwen3_asr.py, class Qwen3ASRConfig: the fields that decide memory.
struct Qwen3AsrConfig : ConvolvedAudioConfig {
  LlamaConfig text;
  bool tie_word_embeddings = true;

  /// Qwen3ASRFeatureExtractor makes half a second of what is shorter.
  AudioChunks chunks(std::int64_t audios, double seconds) const {
    return chunks_of(audios, seconds < 0.5 ? 0.5 : seconds);
  }
  bool operator==(const Qwen3AsrConfig&) const = default;
};

/// Qwen3ASRForConditionalGeneration (models/qwen3_asr/modeling_qwen3_asr.py).
std::unique_ptr<Model> build_qwen3_asr(Context& context, const Qwen3AsrConfig& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
