#include "train/loops/batch_logps.h"

#include <cstdint>

#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// (per_token_logps * mask).sum(-1)
Tensor sum_of(const Tensor& per_token_logps, const Tensor& mask) {
  const Tensor masked = mul(per_token_logps, mask);
  return sum(masked, {1}, false);
}

/// front_logps + ld_alpha * rear_logps
Tensor split_lengths(const Tensor& per_token_logps, const Tensor& loss_mask, const Tensor& valid_length) {
  Context& context = per_token_logps.context();
  const Shape& sizes = per_token_logps.sizes();
  const std::int64_t num_examples = sizes[0] / 2;
  const Tensor chosen_lengths = slice(valid_length, 0, 0, num_examples);
  const Tensor rejected_lengths = slice(valid_length, 0, num_examples, num_examples);
  const Tensor min_lengths = pointwise(Op::minimum, {&chosen_lengths, &rejected_lengths}, DType::int64);
  Tensor start_positions;
  {
    const Tensor as_int = to(loss_mask, DType::int32);
    start_positions = reduce(Op::argmax, as_int, {1}, false, DType::int64);
  }
  Tensor public_lengths;
  {
    const Tensor both = cat({min_lengths, min_lengths}, 0);
    public_lengths = pointwise(Op::add, {&start_positions, &both}, DType::int64);
  }
  const Tensor position_ids = expand(empty(context, Op::arange, {sizes[1]}, DType::int64), sizes);
  const Tensor ld_mask = empty(context, Op::lt, sizes, DType::boolean);
  const auto mask_of = [&](const Tensor& part) {
    const Tensor scored = pointwise(Op::mul, {&part, &loss_mask}, DType::boolean);
    return to(scored, DType::float32);
  };
  const Tensor front_mask = mask_of(ld_mask);
  Tensor rear_mask;
  {
    const Tensor is_rear = pointwise(Op::bitwise_not, {&ld_mask}, DType::boolean);
    rear_mask = mask_of(is_rear);
  }
  const Tensor front_logps = sum_of(per_token_logps, front_mask);
  const Tensor rear_logps = sum_of(per_token_logps, rear_mask);
  const Tensor weighted = mul_scalar(rear_logps);
  return add(front_logps, weighted);
}

}  // namespace

BatchLogps batch_logps(const Tensor& all_logits, const Tensor& all_labels, bool splits_lengths) {
  const std::int64_t length = all_labels.size(1) - 1;
  const Tensor labels = clone(slice(all_labels, 1, 1, length));
  const Tensor logits = slice(all_logits, 1, 0, length);
  const Tensor loss_mask = pointwise(Op::ne, {&labels}, DType::boolean);
  { const Tensor is_ignored = pointwise(Op::eq, {&labels}, DType::boolean); }  // labels[is_ignored] = 0, in place
  Tensor per_token_logps;
  {
    const Tensor all_logps = log_softmax(logits);
    per_token_logps = view(gather(all_logps, unsqueeze(labels, 2)), labels.sizes());
  }
  BatchLogps result;
  result.valid_length = sum(loss_mask, {1}, false);
  result.logps = splits_lengths ? split_lengths(per_token_logps, loss_mask, result.valid_length)
                                : sum_of(per_token_logps, loss_mask);
  return result;
}

}  // namespace oometer
