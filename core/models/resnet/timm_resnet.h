#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "models/resnet/resnet.h"

/// timm 1.0, models/resnet.py, with features_only: a FeatureListNet of its layers, whose activations work in place.
namespace oometer {

/// What timm builds by a name; null: none that is known here.
struct TimmResNetConfig {
  const char* name;
  bool is_basic;
  std::int64_t depths[4];

  std::int64_t expansion() const { return is_basic ? 1 : 4; }
  /// Of what the stages give, the first one being stage 1.
  std::int64_t channels(std::size_t stage) const { return (64 << (stage - 1)) * expansion(); }
  /// The same network as transformers has it, for sizes.
  ResNetConfig sizes(std::int64_t num_channels) const;
};
const TimmResNetConfig* find_timm_resnet(std::string_view name);

/// A BasicBlock or Bottleneck.
struct TimmResNetBlock {
  /// `first_dilation`: of the convolution that strides; the second one of a basic block has `dilation`.
  TimmResNetBlock(const Builder& builder, const TimmResNetConfig& config, std::int64_t inplanes, std::int64_t planes,
                  std::int64_t stride, std::int64_t first_dilation, std::int64_t dilation, bool downsamples,
                  const char* frozen);
  Tensor operator()(const Tensor& x) const;

  List<AnyConv2d> convs;
  std::vector<ResNetNorm> norms;
  std::optional<AnyConv2d> downsample;
  ResNetNorm downsample_norm;
  ModuleId module, downsample_module = 0;
};

struct TimmResNet {
  /// `output_stride`: 32; 16 or 8: the last stages dilate in place of their strides.
  TimmResNet(const Builder& builder, const TimmResNetConfig& config, std::int64_t num_channels,
             std::int64_t output_stride, const char* frozen);
  /// replace_batch_norm. All parameters train.
  void freeze();
  /// What each stage gives.
  TensorList operator()(const Tensor& pixel_values) const;

  AnyConv2d conv1;
  ResNetNorm bn1;
  std::vector<std::vector<TimmResNetBlock>> layers;
  std::vector<ModuleId> layer_modules;
};

}  // namespace oometer
