#pragma once

#include "models/loss_function.h"

namespace oometer {

/// image_text_contrastive_loss (transformers 5.23, models/clip/modeling_clip.py), of logits_per_text. A class with
/// logits of the other side that are no transpose of them (ClapModel) gives these as labels.
class ImageTextContrastiveLoss : public LossFunction {
 public:
  Tensor operator()(const Tensor& similarity, const Tensor& of_others, const Tensor& attention_mask) const override;
};

}  // namespace oometer
