#pragma once

#include "nn/module.h"

namespace oometer {

/// For a module that _keep_in_fp32_modules_strict names (transformers 5.23): from_pretrained leaves it float32 in a
/// model of halves.
inline Builder kept_in_float32(Builder builder) {
  builder.dtype = DType::float32;
  return builder;
}

}  // namespace oometer
