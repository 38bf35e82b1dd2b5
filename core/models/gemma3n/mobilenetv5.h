#pragma once

#include <memory>
#include <vector>

#include "nn/attention.h"
#include "nn/module.h"

/// timm 1.0.31, models/mobilenetv5.py: the tower of Gemma 3n, which has one size.
namespace oometer {

inline constexpr std::int64_t kMobileNetV5ImageSize = 768;  ///< pixels a side, as the processor makes them
inline constexpr std::int64_t kMobileNetV5OutputSize = 16;  ///< of its features
inline constexpr std::int64_t kMobileNetV5Features = 2048;

/// A block of it: takes and gives [n, channels, height, width].
class MobileNetV5Block {
 public:
  virtual ~MobileNetV5Block() = default;
  virtual Tensor operator()(const Tensor& x) const = 0;
};

/// MobileNetV5Encoder("mobilenetv5_300m_enc").
class MobileNetV5Encoder {
 public:
  MobileNetV5Encoder() = default;
  MobileNetV5Encoder(const Builder& builder, AttentionKind kind);
  /// forward_features: [n, 2048, 16, 16].
  Tensor operator()(const Tensor& pixel_values) const;
  const Tensor& first_weight() const { return first_weight_; }

 private:
  using Blocks = std::vector<std::unique_ptr<MobileNetV5Block>>;

  std::unique_ptr<MobileNetV5Block> conv_stem_, ffn_, norm_;
  std::vector<Blocks> stages_;
  Tensor first_weight_;  ///< conv_stem.conv.weight
  ModuleId msfa_ = 0;
};

}  // namespace oometer
