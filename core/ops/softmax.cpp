#include "ops/nll_loss.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

/// ATen/native/cuda/SoftMax.cu, NLLLoss.cu (2.15).
namespace oometer {

namespace {

// softmax_backward_cuda_out: a product of the gradient's size besides the result, which is contiguous; the kernel makes
// the product so for itself.
void softmax_backward(Backward& b) {
  Tensor grad_input = empty(b.context, Op::softmax_backward, b.grad().sizes(), b.node.dtype);
  reads(Op::softmax_backward, grad_input, {&b.grad(), &b.saved(0)});
  {
    const Tensor product = empty_like(Op::softmax_backward, b.grad());
    contiguous(product);
  }
  b.give(0, std::move(grad_input));
}

Tensor softmax_kernel(const Tensor& x, DType dtype) {
  Record record(Op::softmax, softmax_backward, {&x});
  if (record) record->dtype = x.dtype();
  Tensor result = empty(x.context(), Op::softmax, x.sizes(), dtype);
  record.save_output(result);
  return record.output(std::move(result));
}

}  // namespace

// NLLLoss.cu: forward and backward make the target contiguous for themselves.
Tensor nll_loss(const Tensor& x_in, const Tensor& target) {
  const Tensor x = autocast_float32(x_in);
  Record record(Op::nll_loss_forward,
                [](Backward& b) {
                  Tensor grad = empty_like(Op::nll_loss_backward, b.saved(0));
                  reads(Op::nll_loss_backward, grad, {&b.saved(1)});
                  contiguous(b.saved(1));
                  b.give(0, std::move(grad));
                },
                {&x});
  record.save(x);
  record.save(target);
  Context& context = x.context();
  Tensor loss = empty(context, Op::nll_loss_forward, {}, x.dtype());
  const Tensor total_weight = empty(context, Op::nll_loss_forward, {}, x.dtype());
  record.save_output(total_weight);
  contiguous(target);
  return record.output(std::move(loss));
}

// Under autocast it keeps its input's type: F.cross_entropy names that type (Loss.cpp, cross_entropy_loss).
Tensor log_softmax(const Tensor& x) {
  Record record(Op::log_softmax,
                [](Backward& b) {
                  const Tensor& result = b.saved(0);
                  Tensor grad_input = empty_like(Op::log_softmax_backward, result);
                  if (!b.grad().is_contiguous()) const Tensor copy = empty_like(Op::clone, result);
                  reads(Op::log_softmax_backward, grad_input, {&b.grad(), &result});
                  b.give(0, std::move(grad_input));
                },
                {&x});
  Tensor result = empty(x.context(), Op::log_softmax, x.sizes(), x.dtype());
  if (!x.is_contiguous()) const Tensor copy = empty(x.context(), Op::clone, x.sizes(), x.dtype());
  record.save_output(result);
  return record.output(std::move(result));
}

Tensor softmax(const Tensor& x, DType dtype) {
  // Halves to float in one kernel; bfloat16 is converted first (SoftMax.cpp, softmax).
  if (x.dtype() == dtype || (x.dtype() == DType::float16 && dtype == DType::float32)) return softmax_kernel(x, dtype);
  const Tensor converted = to(x, dtype);
  return softmax_kernel(converted, dtype);
}

Tensor cross_entropy(const Tensor& logits, const Tensor& target) {
  const Tensor log_probabilities = log_softmax(logits);
  return nll_loss(log_probabilities, target);
}

}  // namespace oometer
