#pragma once

#include <cstdint>
#include <memory>

#include "models/kit/encoder.h"
#include "models/parakeet/parakeet.h"

/// transformers 5.23, models/canary/modeling_canary.py, and models/cohere_asr/modeling_cohere_asr.py, of which it is a
/// copy: Parakeet's encoder and a decoder that sees its states. Names and order of steps are those files'.
namespace oometer {

/// What differs between the two.
struct CanaryClassNames {
  const char *causal_lm, *model, *decoder, *decoder_layer, *self_attention, *cross_attention, *mlp;
  /// Canary's positions are a table of sines, CohereAsr's are learned; its decoder projects the encoder's states.
  const char* sinusoids = nullptr;
};

/// classes CanaryConfig and CanaryDecoderConfig, CohereAsrConfig. What EncoderConfig says is the decoder's.
struct CanaryConfig : EncoderConfig {
  const CanaryClassNames* names = nullptr;
  ParakeetConfig encoder;
  std::int64_t num_key_value_heads = 8, head_size = 128;
  bool attention_bias = true;
  double attention_dropout = 0;
  bool use_cache = false;  ///< CanaryDecoderConfig's own, which no argument of a trainer reaches

  bool operator==(const CanaryConfig&) const = default;
};

/// CanaryForConditionalGeneration, CohereAsrForConditionalGeneration.
std::unique_ptr<Model> build_canary(Context& context, const CanaryConfig& config, const DataConfig& data,
                                    const ModelOptions& options);

}  // namespace oometer
