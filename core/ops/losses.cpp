#include "ops/losses.h"

#include <utility>

#include "ops/launch.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// Autocast runs both in float32 (autocast_mode.h, AT_FORALL_FP32).
Tensor as_autocast_has_it(const Tensor& x) { return x.context().autocast.enabled ? to(x, DType::float32) : x; }

}  // namespace

// Loss.cpp: mse_loss_out, mse_loss_backward
Tensor mse_loss(const Tensor& given, const Tensor& given_target) {
  const Tensor target = as_autocast_has_it(given_target), input = as_autocast_has_it(given);
  Record record(Op::pow,
                [](Backward& b) { b.give(0, empty(b.context, Op::zeros, b.saved(0).sizes(), b.saved(0).dtype())); },
                {&input});
  record.save(input);
  record.save(target);
  // The result begins with a number for each element (TORCH_META_FUNC(mse_loss)), and keeps that memory.
  const DType dtype = input.dtype() == target.dtype() ? input.dtype() : DType::float32;
  const Tensor elements = empty(input.context(), Op::pow, input.sizes(), dtype);
  Tensor result = alias(elements, {}, {});
  const Tensor squares = pointwise(Op::pow, {&input, &target}, dtype);
  mean_into(result, squares);
  return record.output(std::move(result));
}

// Loss.cpp: binary_cross_entropy_with_logits; FunctionsManual.cpp: binary_cross_entropy_with_logits_backward,
// (input.sigmoid() - target) * grad / n
Tensor binary_cross_entropy_with_logits(const Tensor& given, const Tensor& target) {
  const Tensor input = as_autocast_has_it(given);
  Record record(Op::log_sigmoid,
                [](Backward& b) {
                  const DType dtype = b.saved(0).dtype();
                  Tensor grad = pointwise(Op::sigmoid, {&b.saved(0)}, dtype);
                  grad = pointwise(Op::sub, {&grad, &b.saved(1)}, DType::float32);
                  grad = pointwise(Op::mul, {&grad}, DType::float32);
                  b.give(0, to(grad, dtype));
                },
                {&input});
  record.save(input);
  record.save(target);
  const NoGrad no_grad(input.context());
  const Tensor log_sigmoid = pointwise(Op::log_sigmoid, {&input}, input.dtype());
  const Tensor loss = pointwise(Op::sub, {&target}, target.dtype());  // (1 - target).mul_(input).sub_(log_sigmoid)
  return record.output(mean_all(loss));
}

Tensor log_sigmoid(const Tensor& input) {
  return activation_of_input(Op::log_sigmoid, Op::log_sigmoid_backward, input, false);
}

}  // namespace oometer
