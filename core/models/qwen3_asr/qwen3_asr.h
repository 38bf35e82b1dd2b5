#pragma once

#include <memory>

#include "models/kit/audio_chunks.h"
#include "models/llama/config.h"
#include "models/model.h"
#include "models/whisper/whisper.h"

namespace oometer {

/// transformers 5.23, models/qwen3_asr/configuration_qwen3_asr.py, class Qwen3ASRConfig: the fields that decide memory.
struct Qwen3AsrConfig {
  WhisperConfig audio;  ///< its max_source_positions: of the table of positions, max_position_embeddings
  LlamaConfig text;
  std::int64_t n_window = 50;         ///< half of a chunk's frames
  std::int64_t n_window_infer = 800;  ///< frames whose states attend to one another
  std::int64_t downsample_hidden_size = 480;
  std::int64_t output_dim = 3584;
  bool tie_word_embeddings = true;

  std::int64_t chunk() const { return 2 * n_window; }
  /// Qwen3ASRFeatureExtractor makes half a second of what is shorter.
  AudioChunks chunks(std::int64_t audios, double seconds) const {
    return {audios, whole_frames(seconds < 0.5 ? 0.5 : seconds), chunk(), 3};
  }
  bool operator==(const Qwen3AsrConfig&) const = default;
};

/// Qwen3ASRForConditionalGeneration (models/qwen3_asr/modeling_qwen3_asr.py).
std::unique_ptr<Model> build_qwen3_asr(Context& context, const Qwen3AsrConfig& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
