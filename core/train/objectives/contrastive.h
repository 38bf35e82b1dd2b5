#pragma once

#include "models/loss_function.h"

namespace oometer {

/// image_text_contrastive_loss (transformers 5.23, models/clip/modeling_clip.py), of logits_per_text.
class ImageTextContrastiveLoss : public LossFunction {
 public:
  Tensor operator()(const Tensor& logits, const Tensor& labels, const Tensor& attention_mask) const override;
};

}  // namespace oometer
