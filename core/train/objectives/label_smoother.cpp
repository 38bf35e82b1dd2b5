#include "train/objectives/label_smoother.h"

#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

Tensor smoothed_loss(const Tensor& logits_in, const Tensor& labels_in, bool shifts_labels,
                     const Tensor& num_items_in_batch) {
  Tensor logits = logits_in, labels = labels_in;
  if (shifts_labels) {
    const std::int64_t shorter = labels_in.size(-1) - 1;
    logits = contiguous(slice(logits_in, 1, 0, shorter));
    labels = contiguous(slice(labels_in, -1, 1, shorter));
  }
  Tensor log_probs = log_softmax(logits);
  log_probs = neg(log_probs);
  labels = unsqueeze(labels, -1);
  const Tensor padding_mask = pointwise(Op::eq, {&labels}, DType::boolean);
  labels = pointwise(Op::clamp, {&labels}, DType::int64);
  Tensor nll_loss = gather(log_probs, labels);
  Tensor smoothed = to(sum(log_probs, {-1}, true), DType::float32);
  nll_loss = masked_fill_in_place(nll_loss, padding_mask);
  smoothed = masked_fill_in_place(smoothed, padding_mask);
  Tensor denominator = num_items_in_batch;
  if (!denominator) {  // padding_mask.numel() - padding_mask.long().sum()
    Tensor count = to(padding_mask, DType::int64);
    count = sum_all(count);
    denominator = add_scalar(count);
  }
  const auto mean = [](const Tensor& losses, const Tensor& by) {
    const Tensor total = sum_all(losses);
    return div(total, by);
  };
  nll_loss = mean(nll_loss, denominator);
  {
    const Tensor total = sum_all(smoothed);
    const Tensor by = mul_scalar(denominator);
    smoothed = div(total, by);
  }
  const Tensor of_labels = mul_scalar(nll_loss), of_all = mul_scalar(smoothed);
  return add(of_labels, of_all);
}

}  // namespace oometer
