#pragma once

#include <cstdint>
#include <memory>

#include "config/activation.h"
#include "models/model.h"

namespace oometer {

/// transformers 5.23, models/wav2vec2_bert/configuration_wav2vec2_bert.py, class Wav2Vec2BertConfig: the fields that
/// decide memory.
struct Wav2Vec2BertConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 1024;
  std::int64_t num_hidden_layers = 24;
  std::int64_t num_attention_heads = 16;
  std::int64_t intermediate_size = 4096;
  std::int64_t feature_projection_input_dim = 160;
  Activation hidden_act = Activation::silu;
  double hidden_dropout = 0, activation_dropout = 0, attention_dropout = 0, feat_proj_dropout = 0, final_dropout = 0.1,
         conformer_conv_dropout = 0.1;
  std::int64_t left_max_position_embeddings = 64, right_max_position_embeddings = 8;
  std::int64_t conv_depthwise_kernel_size = 31;
  bool has_masked_spec_embed = true;  ///< mask_time_prob > 0
  bool masks_states = true;           ///< apply_spec_augment, too
  double mask_time_prob = 0.05;
  std::int64_t mask_time_length = 10, mask_time_min_masks = 2;
  bool ctc_mean = false;  ///< ctc_loss_reduction: "mean", else "sum"
  bool ctc_zero_infinity = false;

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
  /// Frames of 25 ms, one each 10 ms (SeamlessM4TFeatureExtractor): 0 where there is not one.
  static std::int64_t frames(double seconds);
  /// Two frames are a state; an odd last one is padded.
  static std::int64_t states(double seconds) { return (frames(seconds) + 1) / 2; }
  /// Those that attend: the extractor's mask has the second frame of each.
  static std::int64_t attended_states(double seconds) { return frames(seconds) / 2; }

  bool operator==(const Wav2Vec2BertConfig&) const = default;
};

/// Wav2Vec2BertForCTC (models/wav2vec2_bert/modeling_wav2vec2_bert.py).
std::unique_ptr<Model> build_wav2vec2_bert(Context& context, const Wav2Vec2BertConfig& config, const DataConfig& data,
                                           const ModelOptions& options);

}  // namespace oometer
