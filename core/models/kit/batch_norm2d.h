#pragma once

#include "nn/module.h"

namespace oometer {

/// nn.BatchNorm2d, with statistics of its own.
struct BatchNorm2d {
  BatchNorm2d() = default;
  BatchNorm2d(const Builder& builder, std::int64_t channels);
  Tensor operator()(const Tensor& x) const;

  Tensor weight, bias;
  ModuleId module = 0;
};

}  // namespace oometer
