#pragma once

#include <cstdint>

#include "nn/module.h"
#include "ops/vision.h"

namespace oometer {

/// nn.Conv2d whose kernel may overlap, or be of some channels alone; Conv2d (nn/module.h) is a patch embedding's.
struct AnyConv2d {
  struct Options {
    std::int64_t kernel = 1, stride = 1, padding = 0, groups = 1;
    bool bias = true;
  };

  AnyConv2d() = default;
  AnyConv2d(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, const Options& options);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ConvolutionOptions options;
  ModuleId module = 0;
};

}  // namespace oometer
