#pragma once

#include <memory>

#include "models/model.h"
#include "models/qwen2_vl/config.h"
#include "models/whisper/whisper.h"

namespace oometer {

extern const QwenVLClassNames kQwen25OmniClassNames;

/// transformers 5.23, models/qwen2_5_omni/configuration_qwen2_5_omni.py, class Qwen2_5OmniThinkerConfig: the fields
/// that decide memory. The tower and the language model are Qwen2.5-VL's.
struct Qwen25OmniConfig {
  QwenVLConfig grids;
  WhisperConfig audio;          ///< its max_source_positions: states of a chunk
  std::int64_t n_window = 100;  ///< half of a chunk's frames
  std::int64_t output_dim = 3584;

  std::int64_t chunk() const { return 2 * n_window; }
  bool operator==(const Qwen25OmniConfig&) const = default;
};

/// Frames of a spectrogram, which Qwen2_5OmniProcessor pads to the 300 s of the published preprocessor_config.json
/// (chunk_length), where it cuts audio, too.
inline constexpr std::int64_t kQwen25OmniFrames = 30'000;

/// Qwen2_5OmniThinkerForConditionalGeneration (models/qwen2_5_omni/modeling_qwen2_5_omni.py).
std::unique_ptr<Model> build_qwen2_5_omni(Context& context, const Qwen25OmniConfig& config, const DataConfig& data,
                                          const ModelOptions& options);

}  // namespace oometer
