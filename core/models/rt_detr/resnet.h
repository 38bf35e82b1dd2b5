#pragma once

#include <optional>
#include <vector>

#include "models/resnet/resnet.h"

/// transformers 5.23, models/rt_detr/modeling_rt_detr_resnet.py. Names and order of steps are that file's.
namespace oometer {

/// RTDetrResNetBasicLayer, RTDetrResNetBottleNeckLayer: shortcuts that halve an image take averages of it.
struct RTDetrResNetLayer {
  RTDetrResNetLayer(const Builder& builder, const ResNetConfig& config, std::int64_t in_channels,
                    std::int64_t out_channels, std::int64_t stride, bool is_first, const char* frozen);
  Tensor operator()(const Tensor& hidden_state) const;

  bool averages = false;      ///< a Sequential of nn.AvgPool2d and what follows
  bool has_shortcut = false;  ///< RTDetrResNetShortCut; none: an Identity
  AnyConv2d shortcut;
  ResNetNorm shortcut_norm;
  ModuleId outer = 0, pool = 0, inner = 0;
  std::vector<ResNetConvLayer> layers;
  Activation activation;
  ModuleId module, layer_module = 0;
};

struct RTDetrResNetStage {
  RTDetrResNetStage(const Builder& builder, const ResNetConfig& config, std::size_t stage, const char* frozen);
  Tensor operator()(const Tensor& input) const;

  std::vector<RTDetrResNetLayer> layers;
  ModuleId module;
};

/// RTDetrResNetBackbone. `frozen`: null, or the class of norms.
struct RTDetrResNet {
  RTDetrResNet(const Builder& builder, const ResNetConfig& config, const char* frozen);
  /// replace_batch_norm, when the whole of it is there.
  void freeze_norms();
  /// What the stem gives, and each stage behind it.
  TensorList operator()(const Tensor& pixel_values) const;

  std::vector<ResNetConvLayer> embedder;
  std::vector<RTDetrResNetStage> stages;
  ModuleId module, embedder_module = 0, sequential = 0, pooler = 0, encoder = 0;
};

}  // namespace oometer
