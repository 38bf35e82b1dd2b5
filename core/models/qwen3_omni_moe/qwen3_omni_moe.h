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
struct Qwen3OmniConfig : ConvolvedAudioConfig {
  Qwen3VLConfig grids;
  std::int64_t conv_chunksize = 500;  ///< chunks that its convolutions get at once

  bool operator==(const Qwen3OmniConfig&) const = default;
};

/// Qwen3OmniMoeThinkerForConditionalGeneration (models/qwen3_omni_moe/modeling_qwen3_omni_moe.py).
std::unique_ptr<Model> build_qwen3_omni_moe(Context& context, const Qwen3OmniConfig& config, const DataConfig& data,
                                            const ModelOptions& options);

}  // namespace oometer
