#include "train/objectives/contrastive.h"

#include "ops/ops.h"

namespace oometer {

namespace {

Tensor contrastive_loss(const Tensor& logits) {
  const Tensor labels = empty(logits.context(), Op::arange, {logits.size(0)}, DType::int64);
  return cross_entropy(logits, labels);
}

}  // namespace

Tensor ImageTextContrastiveLoss::operator()(const Tensor& similarity, const Tensor& of_others, const Tensor&) const {
  const Tensor caption_loss = contrastive_loss(similarity);
  const Tensor image_loss = contrastive_loss(transpose(of_others ? of_others : similarity, 0, 1));
  const Tensor both = add(caption_loss, image_loss);
  return div_scalar(both);
}

}  // namespace oometer
