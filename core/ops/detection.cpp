#include "ops/detection.h"

#include <utility>

#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

// Distance.cpp: autocast runs it in float32.
Tensor cdist(const Tensor& given_a, const Tensor& given_b) {
  const Tensor a = autocast_float32(given_a), b = autocast_float32(given_b);
  return empty(a.context(), Op::linalg_vector_norm, {a.size(0), b.size(0)}, a.dtype());
}

Tensor diagonal(const Tensor& x) {
  Record record(Op::clone, [](Backward& b) { b.give(0, empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::clone, {x.size(0)}, x.dtype()));
}

// grad.div(self)
Tensor log(const Tensor& given) {
  const Tensor x = autocast_float32(given);
  return activation_of_input(Op::log, Op::div, x, false);
}

// Loss.cpp: binary_cross_entropy_with_logits, which autocast runs in float32; backward is (input.sigmoid() - target) *
// grad, in place.
Tensor binary_cross_entropy_elements(const Tensor& given, const Tensor& given_target, const Tensor& given_weight) {
  const Tensor input = autocast_float32(given), target = autocast_float32(given_target);
  const Tensor weight = given_weight ? autocast_float32(given_weight) : Tensor();
  Record record(Op::log_sigmoid, [](Backward& b) { b.give(0, empty_like(Op::sigmoid, b.saved(0))); }, {&input});
  record.save(input);
  record.save(target);
  if (weight) record.save(weight);
  const Tensor log_sigmoid = empty_like(Op::log_sigmoid, input);
  return record.output(empty_like(Op::sub, input));
}

Tensor l1_loss_elements(const Tensor& given, const Tensor& given_target) {
  const Tensor target = autocast_float32(given_target), input = autocast_float32(given);
  const Tensor difference = sub(input, target);
  return abs(difference);
}

// LossNLL.cpp, cross_entropy_loss: nll_loss2d of [n, classes, 1, length], which autocast runs in float32.
Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& weight) {
  const Tensor log_probabilities = log_softmax(logits), x = autocast_float32(log_probabilities);
  Record record(Op::nll_loss_forward, [](Backward& b) { b.give(0, empty_like(Op::nll_loss_backward, b.saved(0))); },
                {&x});
  record.save(x);
  record.save(target);
  record.save(weight);
  Tensor loss = empty(x.context(), Op::nll_loss_forward, {}, x.dtype());
  const Tensor total_weight = empty(x.context(), Op::nll_loss_forward, {}, x.dtype());
  record.save_output(total_weight);
  return record.output(std::move(loss));
}

}  // namespace oometer
