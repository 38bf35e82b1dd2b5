#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/kit/detection.h"
#include "models/swin/swin.h"

/// transformers 5.23, models/mask2former/modeling_mask2former.py. Names and order of steps are that file's.
namespace oometer {

/// class Mask2FormerConfig (models/mask2former/configuration_mask2former.py). Of VitConfig's fields: labels, channels.
struct Mask2FormerConfig : VitConfig {
  static constexpr std::int64_t kLevels = 3;  ///< num_feature_levels, of the pixel decoder

  SwinConfig swin;
  std::vector<std::size_t> features{1, 2, 3, 4};  ///< stages of the backbone that it hands on, counted from the stem
  std::int64_t feature_size = 256, mask_feature_size = 256, hidden_dim = 256;
  std::int64_t encoder_feedforward_dim = 1024, dim_feedforward = 2048;
  std::int64_t encoder_layers = 6, decoder_layers = 10, heads = 8, num_queries = 100;
  std::int64_t fpn_levels = 1;  ///< finer than those that the pixel decoder's encoder reads
  Activation activation_function = Activation::relu;
  bool pre_norm = false, enforce_input_projection = false;
  std::int64_t train_num_points = 12544, sampled_points = 37632, uncertain_points = 9408;  ///< of a mask

  /// Of the map that a level of the backbone's features is.
  std::int64_t channels(std::size_t feature) const { return swin.dim(features[feature] - 1); }
  bool operator==(const Mask2FormerConfig&) const = default;
};

/// What Mask2FormerLoss reads: a layer's predictions.
struct MaskPredictions {
  Tensor masks_queries_logits, class_queries_logits;
};

/// Mask2FormerLoss, weighted and added up. `labels`: of each image, classes and masks.
DetectionLoss mask2former_loss(const Mask2FormerConfig& config, const List<MaskPredictions>& layers,
                               const TensorList& labels, const Tensor& empty_weight);

std::unique_ptr<Model> build_mask2former(Context& context, const Mask2FormerConfig& config, const DataConfig& data,
                                         const ModelOptions& options);

}  // namespace oometer
