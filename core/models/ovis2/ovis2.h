#pragma once

#include <cstdint>
#include <memory>

#include "models/model.h"
#include "models/vision_language.h"

/// transformers 5.23, models/ovis2/modeling_ovis2.py. Names and order of steps are that file's.
namespace oometer {

class ConfigReader;

inline constexpr VisionFamily kOvis2Vision{"Ovis2VisionModel",
                                           "Ovis2VisionEmbeddings",
                                           "Ovis2VisionEncoder",
                                           "Ovis2VisionEncoderLayer",
                                           "Ovis2VisionAttention",
                                           "Ovis2MLP",
                                           false,
                                           false};

/// class Ovis2Config (models/ovis2/configuration_ovis2.py), with an Ovis2VisionConfig.
struct Ovis2Config : VisionLanguageConfig {
  bool qkv_bias = false, mlp_bias = false;       ///< of the tower
  std::int64_t visual_vocab_size = 16384;        ///< words that an image may be made of
  std::int64_t num_visual_indicator_tokens = 5;  ///< of these the last, which say where an image begins and ends
  std::int64_t hidden_stride = 1;                ///< patches of a token, along a side

  /// Patches of an image, along a side.
  std::int64_t side() const { return vision.image_size / vision.patch_size; }
  std::int64_t tokens_per_image() const { return vision.num_patches() / (hidden_stride * hidden_stride); }
  /// Of the patches of a token, side by side.
  std::int64_t merged_size() const { return vision.hidden_size * hidden_stride * hidden_stride; }
  std::int64_t words() const { return visual_vocab_size - num_visual_indicator_tokens; }

  bool operator==(const Ovis2Config&) const = default;
};

Ovis2Config read_ovis2_config(ConfigReader& reader);
/// Ovis2ForConditionalGeneration.
std::unique_ptr<Model> build_ovis2(Context& context, const Ovis2Config& config, const DataConfig& data,
                                   const ModelOptions& options);

}  // namespace oometer
