#pragma once

#include <memory>
#include <vector>

#include "models/kit/text_config.h"
#include "models/kit/vqgan.h"
#include "models/llama/llama.h"
#include "models/model.h"

namespace oometer {

inline constexpr LlamaClassNames kChameleon{"ChameleonForConditionalGeneration",
                                            "ChameleonModel",
                                            "ChameleonDecoderLayer",
                                            "ChameleonAttention",
                                            "ChameleonMLP",
                                            "ChameleonRMSNorm",
                                            "ChameleonRotaryEmbedding"};
inline constexpr LlamaClassNames kChameleonSwin{"ChameleonForConditionalGeneration",
                                                "ChameleonModel",
                                                "ChameleonSwinDecoderLayer",
                                                "ChameleonAttention",
                                                "ChameleonMLP",
                                                "ChameleonRMSNorm",
                                                "ChameleonRotaryEmbedding"};
inline constexpr VqganFamily kChameleonVqgan{"ChameleonVQVAE",
                                             "ChameleonVQVAEEncoder",
                                             "Module",
                                             "ChameleonVQVAEEncoderResnetBlock",
                                             "ChameleonVQVAEEncoderAttnBlock",
                                             "ChameleonVQVAEEncoderConvDownsample",
                                             "ChameleonVQVAEVectorQuantizer"};

/// class ChameleonConfig (transformers 5.23, models/chameleon/configuration_chameleon.py)
struct ChameleonConfig {
  TextConfig text;
  VqganConfig vq;
  std::int64_t resolution = 512;  ///< pixels of an image
  std::int64_t image_tokens = 0;  ///< of the vocabulary: no text may have them
  bool swin_norm = false;

  /// What is left of a side of an image.
  std::int64_t side() const;
  bool operator==(const ChameleonConfig&) const = default;
};

/// ChameleonForConditionalGeneration (models/chameleon/modeling_chameleon.py).
std::unique_ptr<Model> build_chameleon(Context& context, const ChameleonConfig& config, const DataConfig& data,
                                       const ModelOptions& options);

}  // namespace oometer
