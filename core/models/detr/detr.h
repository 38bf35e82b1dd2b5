#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/kit/detection.h"
#include "models/resnet/timm_resnet.h"
#include "nn/block_stack.h"
#include "tensor/tensor_list.h"

/// transformers 5.23, models/detr/modeling_detr.py. Names and order of steps are that file's.
namespace oometer {

/// class DetrConfig (models/detr/configuration_detr.py). Of VitConfig's fields: classes, labels, channels, activation.
struct DetrConfig : VitConfig {
  bool detects = false;  ///< ForObjectDetection
  ResNetConfig backbone;
  const TimmResNetConfig* timm = nullptr;  ///< the backbone is timm's; null: transformers'
  std::vector<std::size_t> features{4};    ///< stages of the backbone that it hands on, counted from the stem
  std::int64_t num_queries = 100, d_model = 256;
  std::int64_t encoder_layers = 6, encoder_ffn_dim = 2048, encoder_attention_heads = 8;
  std::int64_t decoder_layers = 6, decoder_ffn_dim = 2048, decoder_attention_heads = 8;
  double dropout = 0.1, attention_dropout = 0, activation_dropout = 0;
  bool auxiliary_loss = false;
  bool operator==(const DetrConfig&) const = default;
};

/// A feature map, and the mask of its padding.
struct DetrFeatures {
  Tensor feature_map, mask;
};

/// DetrConvEncoder: a ResNet whose norms are frozen, and which does not train if it is transformers'.
struct DetrConvEncoder {
  DetrConvEncoder(const Builder& builder, const DetrConfig& config, const char* frozen_norm);
  List<DetrFeatures> operator()(const Tensor& pixel_values, const Tensor& pixel_mask) const;

  std::optional<ResNetBody> model;
  std::optional<TimmResNet> timm;
  std::vector<std::size_t> features;
  ModuleId module, model_module = 0;
};

/// DetrSinePositionEmbedding, whose last result and mask lru_cache keeps.
struct DetrSinePositionEmbedding {
  DetrSinePositionEmbedding(const Builder& builder, std::int64_t num_position_features);
  Tensor operator()(DType dtype, const Tensor& mask);

  std::int64_t num_position_features;
  Tensor cached_mask, cached;
  ModuleId module;
};

std::unique_ptr<Model> build_detr(Context& context, const DetrConfig& config, const DataConfig& data,
                                  const ModelOptions& options);

}  // namespace oometer
