#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/bert/config.h"
#include "models/model.h"

namespace oometer {

/// transformers 5.23, models/clap/configuration_clap.py, class ClapAudioConfig.
struct ClapAudioConfig {
  std::int64_t window_size = 8, num_mel_bins = 64, spec_size = 256, patch_size = 4;
  std::int64_t hidden_size = 768, embed_dim = 96;  ///< channels behind the last stage, and in the first
  std::vector<std::int64_t> depths{2, 2, 6, 2}, num_attention_heads{4, 8, 16, 32};  ///< of each stage
  Activation hidden_act = Activation::gelu;
  double hidden_dropout_prob = 0.1, attention_probs_dropout_prob = 0, drop_path_rate = 0, mlp_ratio = 4;
  bool qkv_bias = true, has_patch_norm = true;

  /// ClapFeatureExtractor: 10 s at 48 kHz, a frame each 480 samples.
  static constexpr std::int64_t kFrames = 1001;
  std::int64_t freq_ratio() const { return spec_size / num_mel_bins; }
  std::int64_t side(std::size_t stage) const { return (spec_size / patch_size) >> stage; }
  std::int64_t dim(std::size_t stage) const { return embed_dim << stage; }
  bool operator==(const ClapAudioConfig&) const = default;
};

/// class ClapConfig.
struct ClapConfig {
  ClapAudioConfig audio;
  BertConfig text;
  std::int64_t projection_dim = 512;
  Activation projection_hidden_act = Activation::relu;

  bool operator==(const ClapConfig&) const = default;
};

std::unique_ptr<Model> build_clap(Context& context, const ClapConfig& config, const DataConfig& data,
                                  const ModelOptions& options);

}  // namespace oometer
