#include "ops/convolution.h"
#include "ops/vision.h"
#include "tensor/node.h"

/// Any convolution: ATen/native/Convolution.cpp (2.15). A patch embedding's, which is all that models have, is in
/// convolution.cpp. Without cuDNN PyTorch unfolds one sample at a time into a matrix and multiplies
/// (ConvolutionMM2d.cu, slow_conv2d; NaiveDilatedConvolution.cu; NaiveConvolutionTranspose2d.cu), a group at a time;
/// with cuDNN nothing is unfolded, and its plans take workspaces.
namespace oometer {

namespace {

enum Flag : std::int64_t { kTransposed = 1, kDilated = 2, kUnfolds = 4 };

std::int64_t product(const Shape& sizes, int from) {
  std::int64_t result = 1;
  for (int i = from; i < sizes.ndim(); ++i) result = checked_product(result, sizes[i]);
  return result;
}

/// is_depthwise: a kernel of PyTorch's own, with cuDNN too. One dimension is taken for two (view1d_as_2d).
bool is_depthwise(const Shape& x, const Shape& weight, std::int64_t groups, std::int64_t flags) {
  return (flags & kTransposed) == 0 && x.ndim() <= 4 && groups > 1 && x[1] == groups && weight[0] % x[1] == 0;
}

/// One sample of a group, unfolded: a row for each value that a kernel sees, a column for each place where it stands.
Tensor columns_of(const Tensor& x, const Shape& weight, const Shape& y, std::int64_t flags) {
  const bool transposed = (flags & kTransposed) != 0;
  const std::int64_t places = transposed ? product(x.sizes(), 2) : product(y, 2);
  return empty(x.context(), Op::convolution, {checked_product(weight[1], product(weight, 2)), places}, x.dtype());
}

Tensor copied_group_of(const Tensor& x, std::int64_t groups) {
  Shape sizes = x.sizes();
  sizes[1] /= groups;
  return empty(x.context(), Op::convolution, sizes, x.dtype());
}

/// narrow(...).contiguous() of a contiguous x: a group's channels, a copy unless there is one sample.
Tensor group_of(const Tensor& x, std::int64_t groups) {
  if (x.size(0) != 1) return copied_group_of(x, groups);
  Shape sizes = x.sizes();
  sizes[1] /= groups;
  return make_view(x, sizes, x.strides());
}

Shape first_of(Shape sizes, int dim, std::int64_t groups) {
  sizes[dim] /= groups;
  return sizes;
}

struct Gradients {
  Tensor input, weight, bias;
};

/// A bias's gradient.
Tensor sum_but_channels(const Tensor& grad) {
  std::vector<int> dims{0};
  for (int i = 2; i < grad.ndim(); ++i) dims.push_back(i);
  return reduce(Op::sum, grad, dims, false, grad.dtype());
}

/// A group's backward. `bias` null: its gradient is not asked for.
Gradients slow_backward(Backward& b, const Tensor& x, const Tensor& grad, const Shape& weight, std::int64_t flags) {
  constexpr Op op = Op::convolution_backward;
  Context& context = b.context;
  const std::int64_t samples = x.size(0);
  const DType dtype = grad.dtype();
  const std::int64_t channels = grad.size(1);
  Gradients g;
  const auto make_weight = [&] { g.weight = empty(context, op, weight, dtype); };
  const auto make_bias = [&] {
    if (b.wants(2)) g.bias = empty(context, op, {channels}, dtype);
  };
  if (b.wants(0)) g.input = empty(context, op, x.sizes(), dtype);
  if ((flags & kTransposed) != 0) {
    if (g.input) {
      const Tensor columns = columns_of(x, weight, grad.sizes(), flags);
      multiply_each(context, samples);
    }
    if (b.wants(1)) make_weight();
    make_bias();
    if (!g.weight && !g.bias) return g;
    const Tensor columns = columns_of(x, weight, grad.sizes(), flags);
    if (g.weight) multiply_each(context, samples);
    return g;
  }
  if ((flags & kDilated) != 0 || x.ndim() == 5) {
    if (b.wants(1)) make_weight();
    make_bias();
    const Tensor columns = columns_of(x, weight, grad.sizes(), flags);
    for (std::int64_t i = 0; i < samples; ++i) {
      multiply_each(context, (g.input ? 1 : 0) + (g.weight ? 1 : 0));
      if (g.bias) const Workspace sum(context, op, g.bias.nbytes());
    }
    return g;
  }
  if (!g.input) {
    if (b.wants(2)) g.bias = sum_but_channels(grad);  // at::sum_out
    if (!b.wants(1)) return g;
    make_weight();
    const Tensor columns = columns_of(x, weight, grad.sizes(), flags);
    multiply_each(context, samples);
    return g;
  }
  const Tensor columns = columns_of(x, weight, grad.sizes(), flags);
  multiply_each(context, samples);
  if (b.wants(2)) g.bias = sum_but_channels(grad);
  if (!b.wants(1)) return g;
  make_weight();
  multiply_each(context, samples);
  return g;
}

void convolution_nd_backward(Backward& b) {
  constexpr Op op = Op::convolution_backward;
  const Tensor saved = b.saved(0), weight = b.saved(1);
  const std::int64_t flags = b.node.integers[0], groups = b.node.integers[1];
  Context& context = b.context;
  // Of one dimension it is made contiguous before anything else, and stays (Convolution.cpp, convolution_backward).
  const Tensor x = saved.ndim() == 3 ? ordered(saved, op, false) : saved;
  const bool channels_last = context.behaviours.cudnn && x.ndim() > 3 && is_channels_last(x);
  const auto dense = [&](const Tensor& t) { return ordered(t, op, channels_last); };
  const bool depthwise = !channels_last && is_depthwise(x.sizes(), weight.sizes(), groups, flags);
  // An argument of one call with the gradient (_convolution_backward_nogroup_backend), it is evaluated before it.
  const Tensor contiguous_input = !depthwise && !context.behaviours.cudnn && groups == 1 ? dense(x) : Tensor();
  const bool by_group = !depthwise && !context.behaviours.cudnn && groups > 1;
  const Tensor grad = by_group ? b.grad() : dense(b.grad());
  Gradients g;
  const auto sum_bias = [&] {
    if (b.wants(2)) g.bias = sum_but_channels(grad);
  };
  if (depthwise) {
    Tensor input;
    if (b.wants(1)) input = dense(x);
    if (b.wants(1)) g.weight = empty(context, op, weight.sizes(), grad.dtype());
    input.reset();
    if (b.wants(0)) g.input = empty(context, op, x.sizes(), grad.dtype());
    sum_bias();
  } else if (context.behaviours.cudnn) {
    // cudnn_convolution_backward (ConvShared.cpp): the gradients one after the other.
    const Tensor input = dense(x);
    const std::int64_t workspace =
        channels_last ? 0
                      : cudnn_workspace(context.device, grad.dtype(), x.sizes(), weight.sizes(), grad.sizes(), true);
    if (b.wants(0)) {
      const Tensor kernel = dense(weight);
      g.input = in_order_of(grad, op, x.sizes(), channels_last);
      const Workspace of_plan(context, op, workspace);
    }
    if (b.wants(1)) {
      g.weight = in_order_of(grad, op, weight.sizes(), channels_last);
      const Workspace of_plan(context, op, workspace);
    }
    sum_bias();
  } else if (groups == 1) {
    g = slow_backward(b, contiguous_input, grad, weight.sizes(), flags);
  } else {
    const Tensor input = ordered(x, op, false);
    const Shape part = first_of(weight.sizes(), 0, groups);
    std::vector<Gradients> parts;
    for (std::int64_t i = 0; i < groups; ++i) {
      // subtensor copies a gradient in the order that it suggests; the kernel wants it contiguous.
      const bool copies_twice = is_channels_last(grad) && !grad.is_contiguous();
      const Tensor its_grad = grad.is_contiguous() ? group_of(grad, groups) : copied_group_of(grad, groups);
      const Tensor its_input = group_of(input, groups);
      const Tensor ordered_grad = copies_twice ? copied_group_of(grad, groups) : its_grad;
      parts.push_back(slow_backward(b, its_input, ordered_grad, part, flags));
    }
    if (b.wants(0)) g.input = empty(context, Op::cat, x.sizes(), grad.dtype());
    if (b.wants(1)) g.weight = empty(context, Op::cat, weight.sizes(), grad.dtype());
    if (b.wants(2)) g.bias = empty(context, Op::cat, {grad.size(1)}, grad.dtype());
    for (Tensor Gradients::*kind : {&Gradients::bias, &Gradients::weight, &Gradients::input})
      for (Gradients& its : parts) (its.*kind).reset();
  }
  const bool transposed = (flags & kTransposed) != 0;
  if (g.input) convolution_kernel(op, x.sizes(), grad.sizes(), weight.sizes(), transposed, {&grad, &weight}, g.input);
  if (g.weight) convolution_kernel(op, x.sizes(), grad.sizes(), weight.sizes(), transposed, {&grad, &x}, g.weight);
  if (g.input) b.give(0, std::move(g.input));
  if (g.weight) b.give(1, std::move(g.weight));
  if (g.bias) b.give(2, std::move(g.bias));
}

}  // namespace

std::int64_t cudnn_workspace(const Device& device, DType dtype, const Shape& x, const Shape& weight, const Shape& y,
                             bool backward) {
  const bool is_half = dtype == DType::float16 || dtype == DType::bfloat16;
  const bool has_tensor_cores = is_half ? device.major >= 7 : dtype == DType::float32 && device.major >= 8;
  if (!has_tensor_cores || (!is_half && weight[1] < 8 && product(weight, 2) <= 16)) return 0;
  std::int64_t elements = product(x, 0) + product(weight, 0);
  if (backward || is_half) elements += product(y, 0);
  return checked_product(elements, element_size(dtype));
}

Shape convolution_sizes(const Shape& x, const Shape& weight, const ConvolutionOptions& o) {
  Shape sizes = x;
  sizes[1] = o.transposed ? checked_product(weight[1], o.groups) : weight[0];
  for (int i = 0; i + 2 < x.ndim(); ++i) {
    const std::int64_t reach = checked_product(o.dilation[i], weight[i + 2] - 1);
    sizes[i + 2] =
        o.transposed ? checked_product(x[i + 2] - 1, o.stride[i]) - 2 * o.padding[i] + reach + o.output_padding[i] + 1
        : x[i + 2] + 2 * o.padding[i] < reach + 1 ? 0
                                                  : (x[i + 2] + 2 * o.padding[i] - reach - 1) / o.stride[i] + 1;
  }
  return sizes;
}

Tensor convolution(const Tensor& x_in, const Tensor& weight_in, const Tensor& bias_in, const ConvolutionOptions& o) {
  constexpr Op op = Op::convolution;
  const Tensor bias = autocast_lower(bias_in), weight = autocast_lower(weight_in), x = autocast_lower(x_in);
  Context& context = x.context();
  const Shape sizes = convolution_sizes(x.sizes(), weight.sizes(), o);
  std::int64_t flags = 0;
  if (o.transposed) flags |= kTransposed;
  for (int i = 0; i < o.stride.ndim(); ++i) {
    if (o.dilation[i] != 1) flags |= kDilated;
    if (weight.size(i + 2) != 1 || o.stride[i] != 1 || o.padding[i] != 0) flags |= kUnfolds;
  }
  if ((flags & (kTransposed | kDilated)) != 0 || x.ndim() == 5) flags |= kUnfolds;
  Record record(op, convolution_nd_backward, {&x, &weight, &bias});
  record.save(x);
  record.save(weight);
  if (record) {
    record->integers[0] = flags;
    record->integers[1] = o.groups;
  }
  const bool depthwise = is_depthwise(x.sizes(), weight.sizes(), o.groups, flags);
  if (context.behaviours.cudnn || o.groups == 1 || depthwise) {
    // cudnn_conv_suggest_memory_format (ConvUtils.h): the input's order is the result's.
    const bool channels_last = context.behaviours.cudnn && x.ndim() > 3 && is_channels_last(x);
    const Tensor input = ordered(x, op, channels_last);
    Tensor kernel = channels_last ? ordered(weight, op, true) : Tensor();
    Tensor result = in_order_of(x, op, sizes, channels_last);
    if (context.behaviours.cudnn && !channels_last && !depthwise) {
      const Workspace of_plan(context, op,
                              cudnn_workspace(context.device, x.dtype(), x.sizes(), weight.sizes(), sizes, false));
    } else if (!context.behaviours.cudnn && o.groups == 1) {
      Tensor columns, ones;
      if ((flags & kUnfolds) != 0) columns = columns_of(x, weight.sizes(), sizes, flags);
      if (o.transposed && bias) ones = empty(context, op, {product(sizes, 2)}, x.dtype());
      multiply_each(context, ones ? 2 * x.size(0) : x.size(0));
      ones.reset();
    }
    convolution_kernel(op, x.sizes(), sizes, weight.sizes(), o.transposed, {&x, &weight, &bias}, result);
    return record.output(std::move(result));
  }
  const Tensor all = ordered(x, op, false);
  const Shape part = first_of(weight.sizes(), 0, o.groups), its_sizes = first_of(sizes, 1, o.groups);
  TensorList parts;
  for (std::int64_t i = 0; i < o.groups; ++i) {
    const Tensor input = group_of(all, o.groups);
    parts.push_back(empty(context, op, its_sizes, x.dtype()));
    Tensor columns;
    if ((flags & kUnfolds) != 0) columns = columns_of(input, part, its_sizes, flags);
    multiply_each(context, x.size(0));
  }
  Tensor result = empty(context, Op::cat, sizes, x.dtype());
  convolution_kernel(op, x.sizes(), sizes, weight.sizes(), o.transposed, {&x, &weight, &bias}, result);
  return record.output(std::move(result));
}

}  // namespace oometer
