#pragma once

#include <memory>

#include "models/kit/audio_chunks.h"
#include "models/model.h"
#include "models/qwen3_vl/config.h"
#include "models/whisper/whisper.h"

namespace oometer {

extern const Qwen3VLClass kQwen3OmniMoe;

/// transformers 5.23, models/qwen3_omni_moe/configuration_qwen3_omni_moe.py, class Qwen3OmniMoeThinkerConfig: the
/// fields that decide memory. The tower and the language model are Qwen3-VL-MoE's.
struct Qwen3OmniConfig {
  Qwen3VLConfig grids;
  WhisperConfig audio;                        ///< its max_source_positions: of its table of positions
  std::int64_t n_window = 50;                 ///< half of a chunk's frames
  std::int64_t n_window_infer = 800;          ///< frames whose states attend to one another
  std::int64_t conv_chunksize = 500;          ///< chunks that its convolutions get at once
  std::int64_t downsample_hidden_size = 480;  ///< channels of these
  std::int64_t output_dim = 3584;

  std::int64_t chunk() const { return 2 * n_window; }
  /// Three convolutions halve both a chunk's frames and its mel bins.
  AudioChunks chunks(std::int64_t audios, double seconds) const { return {audios, whole_frames(seconds), chunk(), 3}; }
  bool operator==(const Qwen3OmniConfig&) const = default;
};

/// Qwen3OmniMoeThinkerForConditionalGeneration (models/qwen3_omni_moe/modeling_qwen3_omni_moe.py).
std::unique_ptr<Model> build_qwen3_omni_moe(Context& context, const Qwen3OmniConfig& config, const DataConfig& data,
                                            const ModelOptions& options);

}  // namespace oometer
