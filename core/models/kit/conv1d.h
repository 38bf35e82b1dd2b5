#pragma once

#include <cstdint>

#include "nn/module.h"
#include "ops/vision.h"

/// Modules of encoders of audio whose layers convolve over time.
namespace oometer {

/// nn.Conv1d with a stride of 1.
struct Conv1d {
  struct Options {
    std::int64_t kernel = 1, padding = 0, groups = 1;
    bool bias = true;
  };

  Conv1d() = default;
  Conv1d(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, const Options& options);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ConvolutionOptions options;
  ModuleId module = 0;
};

/// nn.BatchNorm1d.
struct BatchNorm1d {
  BatchNorm1d() = default;
  BatchNorm1d(const Builder& builder, std::int64_t channels);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ModuleId module = 0;
};

}  // namespace oometer
