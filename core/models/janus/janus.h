#pragma once

#include <memory>

#include "models/kit/vqgan.h"
#include "models/model.h"
#include "models/siglip/config.h"
#include "models/vision_language.h"

namespace oometer {

inline constexpr VisionFamily kJanusVision{"JanusVisionModel",
                                           "JanusVisionEmbeddings",
                                           "JanusVisionEncoder",
                                           "JanusVisionEncoderLayer",
                                           "JanusVisionAttention",
                                           "JanusVisionMLP",
                                           false,
                                           true,
                                           true};
inline constexpr VqganFamily kJanusVqgan{
    "JanusVQVAE",          "JanusVQVAEEncoder",        "JanusVQVAEMidBlock",       "JanusVQVAEResnetBlock",
    "JanusVQVAEAttnBlock", "JanusVQVAEConvDownsample", "JanusVQVAEVectorQuantizer"};

/// class JanusConfig (transformers 5.23, models/janus/configuration_janus.py)
struct JanusConfig : VisionLanguageConfig {
  bool attention_bias = true;
  double hidden_dropout = 0, projection_dropout = 0;
  std::int64_t depth = 2;  ///< linear layers of the aligner
  VqganConfig vq;          ///< for making images, and idle here
  std::int64_t out_channels = 3, vq_projection_dim = 2048, vq_layers = 2;
  std::int64_t image_token_embed_dim = 2048;

  bool operator==(const JanusConfig&) const = default;
};

/// JanusForConditionalGeneration (models/janus/modeling_janus.py), which reads images and writes text.
std::unique_ptr<Model> build_janus(Context& context, const JanusConfig& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
