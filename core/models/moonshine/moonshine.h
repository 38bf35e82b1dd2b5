#pragma once

#include <cstdint>
#include <memory>

#include "models/kit/encoder.h"

namespace oometer {

/// transformers 5.23, models/moonshine/configuration_moonshine.py, class MoonshineConfig: the fields that decide
/// memory. What EncoderConfig says is the encoder's.
struct MoonshineConfig : EncoderConfig {
  std::int64_t decoder_layers = 6;
  std::int64_t head_size = 36;    ///< of a head
  std::int64_t padded_size = 36;  ///< the same, padded to pad_head_dim_to_multiple_of
  std::int64_t rotary_dim = 32;
  Activation decoder_hidden_act = Activation::silu;
  bool attention_bias = false;
  double attention_dropout = 0;

  static std::int64_t samples(double seconds);
  /// Of so many samples at 16 kHz; 0 or less where there are too few.
  static std::int64_t states(std::int64_t samples);

  bool operator==(const MoonshineConfig&) const = default;
};

/// MoonshineForConditionalGeneration (models/moonshine/modeling_moonshine.py).
std::unique_ptr<Model> build_moonshine(Context& context, const MoonshineConfig& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
