#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/convnext/convnext.h"
#include "models/resnet/resnet.h"
#include "models/swin/swin.h"

/// transformers 5.23, models/upernet/modeling_upernet.py. Names and order of steps are that file's.
namespace oometer {

enum class UperNetBackbone : std::uint8_t { resnet, swin, convnext };

/// class UperNetConfig (models/upernet/configuration_upernet.py). Of VitConfig's fields: labels, channels.
struct UperNetConfig : VitConfig {
  UperNetBackbone backbone = UperNetBackbone::resnet;
  ResNetConfig resnet;
  SwinConfig swin;
  ConvNextConfig convnext;
  std::vector<std::size_t> features{1, 2, 3, 4};  ///< stages of the backbone that it hands on, counted from the stem
  std::vector<std::int64_t> pool_scales{1, 2, 3, 6};
  bool use_auxiliary_head = true, auxiliary_concat_input = false;
  std::int64_t auxiliary_in_channels = 0;  ///< 0: those of the third map
  std::int64_t auxiliary_channels = 256, auxiliary_num_convs = 1;

  /// Of each map that the backbone hands on.
  std::vector<std::int64_t> channels() const;
  bool operator==(const UperNetConfig&) const = default;
};

std::unique_ptr<Model> build_upernet(Context& context, const UperNetConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
