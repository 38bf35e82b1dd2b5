#pragma once

#include <memory>

#include "models/vision_encoder_decoder/config.h"
#include "nn/kv_cache.h"

namespace oometer {

/// The model of images in a VisionEncoderDecoderModel.
class VisionTower {
 public:
  virtual ~VisionTower() = default;
  /// The last hidden state.
  virtual Tensor operator()(const Tensor& pixel_values, Tensor& pooler_output) = 0;
  virtual std::size_t checkpointable() const = 0;  ///< its blocks
};
/// ViTModel, DeiTModel
std::unique_ptr<VisionTower> make_vit_tower(const Builder& builder, const VitConfig& config,
                                            const ModelOptions& options);
/// DonutSwinModel
std::unique_ptr<VisionTower> make_donut_swin_tower(const Builder& builder, const DonutSwinConfig& config,
                                                   const ModelOptions& options);

/// TrOCRDecoder, which is asked as a BART's is.
std::unique_ptr<BartDecoderInside> make_trocr_decoder(const Builder& builder, const TrocrConfig& config,
                                                      const ModelOptions& options, std::size_t first_block);

}  // namespace oometer
