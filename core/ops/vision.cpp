#include "ops/vision.h"

#include <algorithm>

#include "ops/accumulate.h"
#include "ops/cub.h"
#include "ops/images.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

/// ATen/native/cuda (PyTorch 2.15): SpatialMaxPool2d, AveragePool2d, AdaptiveAveragePooling, Activation, Indexing; what
/// their autograd formulas save is in tools/autograd/derivatives.yaml.
namespace oometer {

namespace {

/// Its backward is as_strided_backward: zeros as large as what is viewed.
Tensor as_strided(const Tensor& x, const Shape& sizes, const Shape& strides) {
  Record record(Op::none, [](Backward& b) { b.give(0, empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  return record.output(make_view(x, sizes, strides));
}

/// CopySlices (torch/csrc/autograd/functions/tensor.cpp): a view that changes in place changes its base, whose history
/// the operator becomes; the view is then one of the base as it now is.
Tensor rebase_history(Record& record, const Tensor& x) {
  const Tensor base = x->base;
  Node& node = *record.operator->();
  node.edges[0] = base.requires_grad() ? autograd::gradient_edge(base) : Edge{};
  const BackwardFunction inner = node.function;
  const Shape base_sizes = base.sizes(), base_strides = base.strides(), sizes = x.sizes();
  node.custom = std::make_unique<std::function<void(Backward&)>>([=](Backward& b) {
    Tensor grad = std::move(b.grads[0]);
    Tensor result = empty_strided(b.context, Op::copy, base_sizes, base_strides, grad.dtype());
    b.grads[0] = empty(b.context, Op::clone, sizes, grad.dtype());
    inner(b);
    b.grads[0] = std::move(grad);  // the engine holds it until the outputs are validated
    b.give(0, std::move(result));
  });
  const Tensor changed = record.output(alias(base, base_sizes, base_strides));
  std::swap(changed->grad_fn, base->grad_fn);  // the base itself, wherever it is held
  std::swap(changed->output_nr, base->output_nr);
  return as_strided(base, sizes, x.strides());
}

void activation_backward(Backward& b) {
  const Tensor& saved = b.saved(0);
  b.give(0, pointwise(static_cast<Op>(b.node.integers[0]), {&b.grad(), &saved}, b.grad().dtype()));
}

void pool_backward(Backward& b) {
  b.give(0, empty(b.context, static_cast<Op>(b.node.integers[0]), b.node.sizes, b.grad().dtype()));
}

Tensor zeros_like_input(Backward& b) { return empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype()); }

/// empty_like(x), a contiguous copy of x for the kernel, then resize_ (Im2Col.cu, Col2Im.cu).
Tensor rearranged(Op op, Op backward, const Tensor& x, const Shape& sizes) {
  Record record(op,
                [](Backward& b) {
                  const bool folds = static_cast<Op>(b.node.integers[0]) == Op::col2im;
                  b.give(0, folds ? col2im(b.grad(), b.node.sizes) : im2col(b.grad(), b.node.sizes));
                },
                {&x});
  if (record) {
    record->integers[0] = static_cast<std::int64_t>(backward);
    record->sizes = x.sizes();
  }
  Tensor first = empty(x.context(), op, x.sizes(), x.dtype());
  const Tensor copy = ordered(x, op, false);
  if (numel(sizes) <= x.numel()) return record.output(alias(first, sizes, contiguous_strides(sizes)));
  Tensor result = empty(x.context(), op, sizes, x.dtype());
  first.reset();
  return record.output(std::move(result));
}

// DilatedMaxPool2d.cu: the indices are as the result is.
void max_pool_backward(Backward& b) {
  constexpr Op op = Op::max_pool2d_backward;
  const bool channels_last = b.node.integers[0] != 0;
  const Tensor& x = b.saved(0);
  const Tensor grad_output = ordered(b.grad(), op, channels_last);
  b.give(0, in_order_of(x, op, x.sizes(), channels_last));
}

void avg_pool_backward(Backward& b) {
  constexpr Op op = Op::avg_pool2d_backward;
  const bool channels_last = b.node.integers[0] != 0;
  const Tensor& x = b.saved(0);
  Tensor grad_input = in_order_of(x, op, x.sizes(), channels_last);
  const Tensor input = ordered(x, op, channels_last), grad = ordered(b.grad(), op, channels_last);
  b.give(0, std::move(grad_input));
}

void scale_gradient(Backward& b) { b.give(0, empty_like(b.node.op, b.grad())); }

}  // namespace

Tensor in_place(Record& record, Op op, const Tensor& x, const Tensor& other) {
  kernel(op, {&x, &other}, x);
  if (!record) return x;
  return x->base ? rebase_history(record, x) : record.output(alias(x, x.sizes(), x.strides()));
}

bool is_like_channels_last(const Tensor& x) {
  std::int64_t least = 0;
  if (x.strides()[1] == 0) return false;
  for (const int dim : {1, 3, 2, 0}) {
    const std::int64_t stride = x.strides()[dim];
    if (stride < least || (dim == 0 && least == x.strides()[1])) return false;
    least = x.size(dim) > 1 ? checked_product(stride, x.size(dim)) : stride;
  }
  return true;
}

Tensor in_order_of(const Tensor& x, Op op, const Shape& sizes, bool channels_last) {
  if (!channels_last) return empty(x.context(), op, sizes, x.dtype());
  Shape strides = contiguous_strides(sizes);
  std::int64_t stride = sizes[1];
  strides[1] = 1;
  for (int i = sizes.ndim() - 1; i >= 2; --i) {
    strides[i] = stride;
    stride = checked_product(stride, sizes[i]);
  }
  return empty_strided(x.context(), op, sizes, strides, x.dtype());
}

Tensor ordered(const Tensor& x, Op op, bool channels_last) {
  return (channels_last ? is_channels_last(x) : x.is_contiguous()) ? x : in_order_of(x, op, x.sizes(), channels_last);
}

Tensor activation_of_input(Op forward, Op backward, const Tensor& x, bool is_in_place) {
  Record record(forward, activation_backward, {&x});
  if (record) record->integers[0] = static_cast<std::int64_t>(backward);
  if (!is_in_place) {
    record.save(x);
    return record.output(empty_like(forward, x));
  }
  if (record) {
    const NoGrad no_grad(x.context());
    record.save(clone(x));  // generated code: `original_self = self.clone()`
  }
  return in_place(record, forward, x);
}

Tensor activation_of_result(Op forward, Op backward, const Tensor& x, bool is_in_place) {
  Record record(forward, activation_backward, {&x});
  if (record) record->integers[0] = static_cast<std::int64_t>(backward);
  Tensor result = is_in_place ? x : empty_like(forward, x);
  record.save_output(result);
  return is_in_place ? in_place(record, forward, x) : record.output(std::move(result));
}

Tensor add_in_place(const Tensor& x, const Tensor& other) {
  const BackwardFunction pass = [](Backward& b) {
    for (unsigned i = 0; i < b.node.edges.size(); ++i)
      if (b.wants(i)) b.give(i, b.grad());
  };
  Record record(Op::add, pass, {&x, &other});
  return in_place(record, Op::add, x, other);
}

Tensor add_multiple_in_place(const Tensor& x, const Tensor& other) {
  const BackwardFunction pass = [](Backward& b) {
    if (b.wants(1)) b.give(1, mul_scalar(b.grad()));  // maybe_multiply(grad, alpha)
    if (b.wants(0)) b.give(0, b.grad());
  };
  Record record(Op::add, pass, {&x, &other});
  return in_place(record, Op::add, x, other);
}

Tensor mul_in_place(const Tensor& x, const Tensor& other) {
  if (!other) {
    Record record(Op::mul, scale_gradient, {&x});
    return in_place(record, Op::mul, x);
  }
  const BackwardFunction backward = [](Backward& b) {
    if (b.wants(1)) b.give(1, mul(b.grad(), b.saved(0)));
    if (b.wants(0)) b.give(0, mul(b.grad(), b.saved(1)));
  };
  Record record(Op::mul, backward, {&x, &other});
  if (record.wants(1)) {
    const NoGrad no_grad(x.context());
    record.save(clone(x));
  } else {
    record.skip();
  }
  record.wants(0) ? record.save(other) : record.skip();
  return in_place(record, Op::mul, x, other);
}

Tensor dropout_in_place(const Tensor& x, double p) {
  if (p == 0) return x;
  Tensor noise;
  {
    const NoGrad no_grad(x.context());
    noise = empty_like(Op::bernoulli, x);
  }
  return mul_in_place(x, noise);
}

Tensor pool(Op forward, Op backward, const Tensor& x, const Shape& sizes, bool keeps_input) {
  Record record(forward, pool_backward, {&x});
  if (record) {
    record->integers[0] = static_cast<std::int64_t>(backward);
    record->sizes = x.sizes();
  }
  if (keeps_input) record.save(x);
  return record.output(empty(x.context(), forward, sizes, x.dtype()));
}

Tensor avg_pool(const Tensor& x, const Shape& sizes) {
  const bool channels_last = x.ndim() == 4 && is_like_channels_last(x);
  Record record(Op::avg_pool2d, avg_pool_backward, {&x});
  if (record) record->integers[0] = channels_last;
  record.save(x);
  Tensor result = in_order_of(x, Op::avg_pool2d, sizes, channels_last);
  const Tensor input = ordered(x, Op::avg_pool2d, channels_last);
  return record.output(std::move(result));
}

Tensor im2col(const Tensor& x, const Shape& sizes) { return rearranged(Op::im2col, Op::col2im, x, sizes); }
Tensor col2im(const Tensor& x, const Shape& sizes) { return rearranged(Op::col2im, Op::im2col, x, sizes); }

Tensor mean_of_images(const Tensor& x) {
  Tensor result = mean(x, std::vector<int>{-1, -2}, true);
  if (x.ndim() != 4 || x.is_contiguous() || x.strides()[1] != 1 || !x.is_non_overlapping_and_dense()) return result;
  const std::int64_t channels = x.size(1);
  return as_strided(result, result.sizes(), {channels, 1, channels, channels});
}

// AdaptiveAveragePooling.cu: the result and the gradient lie in memory as the images do.
Tensor adaptive_avg_pool(const Tensor& x, std::int64_t side) {
  if (side == 1) return mean_of_images(x);
  const bool channels_last = !x.is_contiguous() && is_channels_last(x);
  Record record(Op::adaptive_avg_pool2d,
                [](Backward& b) {
                  const Tensor& saved = b.saved(0);
                  const bool is_last = b.node.integers[0] != 0;
                  Tensor grad_input = in_order_of(saved, Op::adaptive_avg_pool2d_backward, saved.sizes(), is_last);
                  { const Tensor grad_output = ordered(b.grad(), Op::adaptive_avg_pool2d_backward, is_last); }
                  b.give(0, std::move(grad_input));
                },
                {&x});
  if (record) record->integers[0] = channels_last;
  record.save(x);
  const NoGrad no_grad(x.context());
  const Tensor input = ordered(x, Op::adaptive_avg_pool2d, channels_last);
  return record.output(in_order_of(x, Op::adaptive_avg_pool2d, {x.size(0), x.size(1), side, side}, channels_last));
}

Tensor max_pool(const Tensor& x, const Shape& sizes) {
  const bool channels_last = x.ndim() == 4 && is_like_channels_last(x);
  Record record(Op::max_pool2d, max_pool_backward, {&x});
  if (record) record->integers[0] = channels_last;
  record.save(x);
  Tensor result = in_order_of(x, Op::max_pool2d, sizes, channels_last);
  const Tensor indices = empty(x.context(), Op::max_pool2d, sizes, DType::int64);
  record.save_output(indices);
  const NoGrad no_grad(x.context());
  const Tensor input = ordered(x, Op::max_pool2d, channels_last);
  return record.output(std::move(result));
}

Tensor permute(const Tensor& x, const Shape& order) {
  Record record(Op::none,
                [](Backward& b) {
                  Shape inverse = b.node.sizes;
                  for (int i = 0; i < inverse.ndim(); ++i) inverse[static_cast<int>(b.node.sizes[i])] = i;
                  b.give(0, permute(b.grad(), inverse));
                },
                {&x});
  if (record) record->sizes = order;
  Shape sizes = order, strides = order;
  for (int i = 0; i < order.ndim(); ++i) {
    sizes[i] = x.size(static_cast<int>(order[i]));
    strides[i] = x.strides()[static_cast<int>(order[i])];
  }
  return record.output(make_view(x, sizes, strides));
}

Tensor index(const Tensor& x, int dim, const Tensor& index) {
  const BackwardFunction backward = [](Backward& b) {
    Context& context = b.context;
    const std::int64_t count = b.saved(0).numel(), rows = b.node.integers[0];
    const auto indices = [&](Op op) { return empty(context, op, {count}, DType::int64); };
    Tensor zeros = empty(context, Op::zeros, b.node.sizes, b.grad().dtype());
    Tensor linear;
    {
      const Tensor wrapped = indices(Op::index_put);
      linear = indices(Op::mul);
    }
    const Tensor sorted = indices(Op::index_put), original = indices(Op::index_put), range = indices(Op::arange);
    { const Workspace scratch(context, Op::index_put, cub_sort_pairs_bytes(count, rows - 1, context.device.major)); }
    accumulate_rows(b.grad(), zeros);
    b.give(0, std::move(zeros));
  };
  Record record(Op::index, backward, {&x});
  record.save(index);
  if (record) {
    record->sizes = x.sizes();
    record->integers[0] = x.size(dim);
  }
  Shape sizes;
  for (int i = 0; i < dim; ++i) sizes.push_back(x.size(i));
  for (const std::int64_t size : index.sizes()) sizes.push_back(size);
  for (int i = dim + 1; i < x.ndim(); ++i) sizes.push_back(x.size(i));
  return record.output(empty(x.context(), Op::index, sizes, x.dtype()));
}

Tensor index_select(const Tensor& x, int dim, const Tensor& index) {
  // index_select_backward: zeros, into which index_add_ adds
  Record record(Op::index_select, [](Backward& b) { b.give(0, zeros_like_input(b)); }, {&x});
  record.save(index);
  if (record) record->sizes = x.sizes();
  Shape sizes = x.sizes();
  sizes[dim] = index.numel();
  return record.output(empty(x.context(), Op::index_select, sizes, x.dtype()));
}

TensorList max(const Tensor& x, int dim, bool keepdim) {
  // value_selecting_reduction_backward: zeros, into which scatter_ writes
  Record record(Op::max, [](Backward& b) { b.give(0, zeros_like_input(b)); }, {&x});
  if (record) record->sizes = x.sizes();
  Shape sizes;
  for (int i = 0; i < x.ndim(); ++i)
    if (i != dim || keepdim) sizes.push_back(i == dim ? 1 : x.size(i));
  TensorList results;
  Tensor values = empty(x.context(), Op::max, sizes, x.dtype());
  const Tensor indices = empty(x.context(), Op::max, sizes, DType::int64);
  record.save_output(indices);
  results.push_back(record.output(std::move(values)));
  results.push_back(indices);
  return results;
}

Tensor maximum(Op op, const Tensor& a, const Tensor& b) {
  // where(self == other, grad / 2, grad), of which what the other one won is filled with 0
  Record record(op,
                [](Backward& call) {
                  const Tensor &self = call.saved(0), &other = call.saved(1), &grad = call.grad();
                  for (const unsigned i : {1U, 0U}) {
                    if (!call.wants(i)) continue;
                    const Tensor lost = pointwise(Op::lt, {&self, &other}, DType::boolean);
                    const Tensor half = div_scalar(grad);
                    const Tensor ties = pointwise(Op::eq, {&self, &other}, DType::boolean);
                    call.give(i, pointwise(Op::where, {&ties, &half, &grad}, grad.dtype()));
                  }
                },
                {&a, &b});
  record.save(a);
  record.save(b);
  // A tensor without dimensions does not promote one with; float32 is before halves.
  const DType dtype = b.ndim() == 0 ? a.dtype() : std::min(a.dtype(), b.dtype());
  return record.output(pointwise(op, {&a, &b}, dtype));
}

Tensor addcmul(const Tensor& x, const Tensor& a, const Tensor& b) {
  // grad * (other * value), for each of the two
  Record record(Op::add,
                [](Backward& call) {
                  if (call.wants(0)) call.give(0, call.grad());
                  for (unsigned i : {1U, 2U})
                    if (call.wants(i)) call.give(i, mul(call.grad(), mul_scalar(call.saved(2 - i))));
                },
                {&x, &a, &b});
  record.wants(2) ? record.save(a) : record.skip();
  record.wants(1) ? record.save(b) : record.skip();
  return record.output(pointwise(Op::add, {&x, &a, &b}, x.dtype()));
}

namespace {

/// where(self >= min [and self <= max], grad, 0); `integers[0]`: whether there is a max.
void clamp_backward(Backward& b) {
  const Tensor &self = b.saved(0), &grad = b.grad();
  const auto mask_of = [&](Op op) { return empty_like(op, self, DType::boolean); };
  const Tensor zero = empty(b.context, Op::empty, {}, grad.dtype());
  const Tensor mask = mask_of(Op::ge);
  Tensor below;  // logical_and_ of both, in place
  if (b.node.integers[0] != 0) below = mask_of(Op::le);
  b.give(0, pointwise(Op::where, {&mask, &grad, &zero}, grad.dtype()));
}

}  // namespace

Tensor clamp(const Tensor& x, bool both) {
  Record record(Op::clamp, clamp_backward, {&x});
  if (record) record->integers[0] = both;
  record.save(x);
  return record.output(empty_like(Op::clamp, x));
}

Tensor clamp_in_place(const Tensor& x) {
  Record record(Op::clamp, clamp_backward, {&x});
  if (record) {
    record->integers[0] = 1;
    record.save(empty_like(Op::clone, x));
  }
  return in_place(record, Op::clamp, x);
}

Tensor sqrt(const Tensor& x) {
  // grad / (2 * result)
  Record record(Op::sqrt, [](Backward& b) { b.give(0, div(b.grad(), mul_scalar(b.saved(0)))); }, {&x});
  Tensor result = empty_like(Op::sqrt, x);
  record.save_output(result);
  return record.output(std::move(result));
}

Tensor repeat(const Tensor& x, const Shape& times) {
  // repeat_backward: a view with a dimension for the repetitions beside each, summed over those if there are any
  Record record(Op::repeat,
                [](Backward& b) {
                  const bool repeats = b.grad().sizes() != b.node.sizes;
                  b.give(0, repeats ? empty(b.context, Op::sum, b.node.sizes, b.grad().dtype()) : b.grad());
                },
                {&x});
  if (record) record->sizes = x.sizes();
  Shape sizes = times;
  for (int i = 1; i <= x.ndim(); ++i) sizes[-i] = checked_product(sizes[-i], x.size(-i));
  return record.output(empty(x.context(), Op::repeat, sizes, x.dtype()));
}

Tensor repeat_interleave(const Tensor& x, std::int64_t times, int dim) {
  Shape sizes = x.sizes(), wide = x.sizes();
  sizes[dim] = checked_product(sizes[dim], times);
  wide.insert(dim + 1, times);
  return reshape(contiguous(expand(unsqueeze(x, dim + 1), wide)), sizes);
}

Tensor unfold(const Tensor& x, int dim, std::int64_t size, std::int64_t step) {
  // unfold_backward: zeros as large as what was viewed, into which the windows are added
  Record record(Op::none, [](Backward& b) { b.give(0, empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype())); },
                {&x});
  if (record) record->sizes = x.sizes();
  Shape sizes = x.sizes(), strides = x.strides();
  sizes[dim] = (x.size(dim) - size) / step + 1;
  sizes.push_back(size);
  strides.push_back(strides[dim]);
  strides[dim] = checked_product(strides[dim], step);
  return record.output(make_view(x, sizes, strides));
}

/// A contiguous clone of x, expanded, which is filled in place (Indexing.cu, masked_fill).
Tensor masked_fill(const Tensor& x, const Tensor& mask) {
  Record record(Op::masked_fill,
                [](Backward& b) { b.give(0, empty(b.context, Op::masked_fill, b.grad().sizes(), b.grad().dtype())); },
                {&x});
  record.save(mask);
  return record.output(empty(x.context(), Op::masked_fill, broadcast(x.sizes(), mask.sizes()), x.dtype()));
}

}  // namespace oometer
