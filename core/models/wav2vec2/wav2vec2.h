#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "config/activation.h"
#include "models/model.h"

/// transformers 5.23, models/wav2vec2/modeling_wav2vec2.py, and its copies models/hubert/modeling_hubert.py,
/// models/wavlm/modeling_wavlm.py, models/unispeech/modeling_unispeech.py and
/// models/unispeech_sat/modeling_unispeech_sat.py. Names and order of steps are those files'.
namespace oometer {

class ConfigReader;

/// What the classes of an encoder of sound are called.
struct Wav2Vec2ClassNames {
  const char *model_type, *class_name, *base, *model, *feature_encoder, *plain_conv, *layer_norm_conv, *group_norm_conv,
      *feature_projection, *encoder, *stable_encoder, *positional_conv, *layer, *stable_layer, *attention,
      *feed_forward;
  bool returns_features;    ///< extract_features, normalised, among what the model gives
  bool spans_know_padding;  ///< what is masked is drawn of the states that are no padding
  bool counts_by_cumsum;    ///< samples that are no padding, in _get_feature_vector_attention_mask; else by sum
  bool has_gated_attention = false;  ///< GatedAttention
};
extern const Wav2Vec2ClassNames kWav2Vec2, kHubert, kWavLm, kUniSpeech, kUniSpeechSat;

/// class Wav2Vec2Config, class HubertConfig, class WavLMConfig: the fields that decide memory.
struct Wav2Vec2Config {
  const Wav2Vec2ClassNames* names = &kWav2Vec2;
  std::int64_t vocab_size = 32;
  std::int64_t hidden_size = 768;
  std::int64_t num_hidden_layers = 12;
  std::int64_t num_attention_heads = 12;
  std::int64_t intermediate_size = 3072;
  Activation hidden_act = Activation::gelu, feat_extract_activation = Activation::gelu;
  double hidden_dropout = 0.1, activation_dropout = 0.1, attention_dropout = 0.1, feat_proj_dropout = 0,
         final_dropout = 0.1;
  bool norms_layers = false;  ///< feat_extract_norm: "layer", else "group"
  bool feat_proj_layer_norm = true;
  std::vector<std::int64_t> conv_dim, conv_stride, conv_kernel;
  bool conv_bias = false;
  std::int64_t num_conv_pos_embeddings = 128, num_conv_pos_embedding_groups = 16;
  std::int64_t num_buckets = 320;  ///< of relative positions: WavLM's
  bool do_stable_layer_norm = false;
  bool has_masked_spec_embed = true;  ///< mask_time_prob > 0
  bool masks_states = true;           ///< apply_spec_augment, too
  double mask_time_prob = 0.05;
  std::int64_t mask_time_length = 10, mask_time_min_masks = 2;
  const char* class_name = "";
  bool classifies = false;  ///< ForSequenceClassification
  std::int64_t classifier_proj_size = 256, num_labels = 2;
  bool use_weighted_layer_sum = false;
  bool ctc_mean = false;  ///< ctc_loss_reduction: "mean", else "sum"
  bool ctc_zero_infinity = false;

  std::int64_t head_dim() const { return hidden_size / num_attention_heads; }
  static std::int64_t samples(double seconds);
  /// _get_feat_extract_output_lengths
  std::int64_t states(std::int64_t samples) const;
  /// The fewest samples that make so many states, one or more.
  std::int64_t samples_of(std::int64_t states) const;
  /// Of a sample of so many states those that SpecAugment masks.
  std::int64_t masked_states(std::int64_t states) const;

  bool operator==(const Wav2Vec2Config&) const = default;
};

/// Wav2Vec2ForCTC, HubertForCTC, WavLMForCTC, and their ForSequenceClassification.
std::unique_ptr<Model> build_wav2vec2(Context& context, const Wav2Vec2Config& config, const DataConfig& data,
                                      const ModelOptions& options);

}  // namespace oometer
