#include "ops/convolution.h"

#include <algorithm>
#include <vector>

#include "tensor/kernel.h"
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
  std::vector<int> but_channels{0};
  for (int i = 2; i < grad.ndim(); ++i) but_channels.push_back(i);
  const auto sum_bias = [&] { return reduce(Op::sum, grad_output, but_channels, false, grad.dtype()); };
  // Three-dimensional ones are another kernel's (NaiveDilatedConvolution.cu), which sums the bias a sample at a time.
  const bool by_sample = grad.ndim() == 5 && !context.behaviours.cudnn;
  Tensor grad_bias = b.wants(2) && !context.behaviours.cudnn && !by_sample ? sum_bias() : Tensor();
  Tensor grad_weight = b.wants(1) ? empty_like(Op::convolution_backward, weight) : Tensor();
  if (b.wants(2) && by_sample) grad_bias = empty(context, Op::convolution_backward, {grad.size(1)}, grad.dtype());
  if (!context.behaviours.cudnn) {
    const Tensor columns = columns_of(x, numel(grad.sizes()) / (grad.size(0) * grad.size(1)), weight.sizes());
    for (std::int64_t sample = 0; sample < x.size(0); ++sample) {
      multiply_each(context, 1);
      if (grad_bias && by_sample) const Tensor sum = empty(context, Op::sum, {grad.size(1)}, grad.dtype());
    }
  }
  if (grad_input)
    convolution_kernel(Op::convolution_backward, x.sizes(), grad.sizes(), weight.sizes(), false, {&grad, &weight},
                       grad_input);
  if (grad_weight)
    convolution_kernel(Op::convolution_backward, x.sizes(), grad.sizes(), weight.sizes(), false, {&grad, &x},
                       grad_weight);
  if (grad_input) b.give(0, std::move(grad_input));
  if (grad_weight) b.give(1, std::move(grad_weight));
  if (b.wants(2)) b.give(2, grad_bias ? std::move(grad_bias) : sum_bias());
}

}  // namespace

void convolution_kernel(Op op, const Shape& x, const Shape& y, const Shape& weight, bool transposed,
                        std::initializer_list<const Tensor*> read, const Tensor& written) {
  if (written.context().stopped) return;
  std::int64_t places = x[0], kernel = 1;  // where the kernel stands, in all samples; its size
  for (int i = 2; i < x.ndim(); ++i) {
    places = checked_product(places, (transposed ? x : y)[i]);
    kernel = checked_product(kernel, weight[i]);
  }
  const std::int64_t flops = checked_product(2 * places, numel(weight));
  const bool is_weights = op == Op::convolution_backward && written.sizes() == weight;
  written.context().work(
      {.op = static_cast<OpId>(op),
       .kind = WorkKind::convolution,
       .dtype = written.dtype(),
       .read = touched(read),
       .written = touched(written)},
      {.m = places,
       .n = weight[0],
       .k = numel(weight) / std::max<std::int64_t>(weight[0], 1),
       .flops = flops,
       .counted = is_weights ? checked_product(checked_product(2 * places, kernel), x[1] * y[1]) : flops});
}

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
  convolution_kernel(Op::convolution, x.sizes(), sizes, weight.sizes(), false, {&x, &weight, &bias}, result);
  return record.output(std::move(result));
}

}  // namespace oometer
