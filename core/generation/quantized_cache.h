#pragma once

#include <vector>

#include "generation/cache.h"
#include "generation/quantizers.h"

namespace oometer {

/// QuantizedCache (transformers 5.23, cache_utils.py) of a group-wise backend: what came before the last few tokens is
/// kept quantised, and dequantised whole for each step; once `residual_length` tokens have come since, all of it is
/// quantised again. The first states are attended to as they are.
class QuantizedCache : public GrowingCache {
 public:
  QuantizedCache(Context& context, const CacheConfig& config, std::vector<std::int64_t> of_layers)
      : GrowingCache(std::move(of_layers)), context_(context), config_(config), layers_(windows.size()) {}

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override;
  void grow(std::int64_t tokens) override;

 private:
  struct Side {
    QuantizedStates quantized;
    Tensor residual;  ///< in full precision
  };
  struct Layer {
    Side keys, values;
    std::int64_t residual_length = 0;
    DType dtype = DType::float32;
    ModuleId module = 0;
  };

  States append(Layer& layer, std::int64_t tokens);

  Context& context_;
  CacheConfig config_;
  List<Layer> layers_;
};

/// Its backend "fp8": one scale for all, new states are quantised and joined to the old ones.
class Fp8Cache : public GrowingCache {
 public:
  Fp8Cache(Context& context, std::vector<std::int64_t> of_layers)
      : GrowingCache(std::move(of_layers)), context_(context), layers_(windows.size()) {}

  States update(std::size_t layer, const Tensor& keys, const Tensor& values) override;
  void grow(std::int64_t tokens) override;

 private:
  struct Side {
    Tensor quantized, scale;
  };
  struct Layer {
    Side keys, values;
    DType dtype = DType::float32;
    ModuleId module = 0;
  };

  Tensor quantize(const Shape& sizes) const;
  Tensor dequantize(const Tensor& quantized, DType dtype) const;
  States append(Layer& layer, std::int64_t tokens);

  Context& context_;
  List<Layer> layers_;
};

}  // namespace oometer
