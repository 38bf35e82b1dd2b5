#include "ops/convolution.h"

#include "tensor/node.h"

/// Patch embedding. Without cuDNN PyTorch unfolds one image at a time into a matrix and multiplies
/// (ATen/native/cuda/ConvolutionMM2d.cu, slow_conv2d); with cuDNN nothing is unfolded, and what cuDNN takes for itself
/// is not known (the report says so).
namespace oometer {

namespace {

Tensor columns_of(const Tensor& x, std::int64_t patches, const Shape& kernel) {
  return empty(x.context(), Op::convolution, {numel(kernel) / kernel[0], patches}, x.dtype());
}

void convolution_backward(Backward& b) {
  const Tensor x = b.saved(0), weight = b.saved(1);
  Context& context = b.context;
  const Tensor& grad = b.grad();
  const Tensor grad_output =
      grad.is_contiguous() ? grad : empty(context, Op::convolution_backward, grad.sizes(), grad.dtype());
  Tensor grad_input = b.wants(0) ? empty_like(Op::convolution_backward, x) : Tensor();
  const auto sum_bias = [&] { return reduce(Op::sum, grad_output, {0, 2, 3}, false, grad.dtype()); };
  Tensor grad_bias = b.wants(2) && !context.behaviours.cudnn ? sum_bias() : Tensor();
  Tensor grad_weight = b.wants(1) ? empty_like(Op::convolution_backward, weight) : Tensor();
  if (!context.behaviours.cudnn) {
    const Tensor columns = columns_of(x, numel(grad.sizes()) / (grad.size(0) * grad.size(1)), weight.sizes());
    multiply_each(context, x.size(0));
  }
  if (grad_input) b.give(0, std::move(grad_input));
  if (grad_weight) b.give(1, std::move(grad_weight));
  if (b.wants(2)) b.give(2, grad_bias ? std::move(grad_bias) : sum_bias());
}

}  // namespace

Tensor convolution(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in) {
  const Tensor bias = autocast_lower(bias_in), weight = autocast_lower(weight_in), x = autocast_lower(x_in);
  Record record(Op::convolution, convolution_backward, {&x, &weight, &bias});
  record.save(x);
  record.save(weight);
  Context& context = x.context();
  Shape sizes{x.size(0), weight.size(0)};
  std::int64_t patches = 1;  // of an image
  for (int i = 2; i < x.ndim(); ++i) {
    sizes.push_back(x.size(i) / weight.size(i));
    patches = checked_product(patches, sizes[i]);
  }
  Tensor result = empty(context, Op::convolution, sizes, x.dtype());
  if (!context.behaviours.cudnn) {
    const Tensor columns = columns_of(x, patches, weight.sizes());
    multiply_each(context, x.size(0));
  }
  return record.output(std::move(result));
}

}  // namespace oometer
