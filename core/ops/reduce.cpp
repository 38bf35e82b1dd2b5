#include <algorithm>
#include <numeric>

#include "ops/launch.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// A reduction as TensorIterator sees it, its dimensions merged: `inputs` values to each of `outputs` results.
struct ReducePlan {
  std::int64_t inputs = 1, outputs = 1;
  bool fastest_is_reduced = true;  ///< the reduced dimension is the contiguous one
  bool fastest_is_contiguous = true;
  int merged_dims = 1;
};

/// setReduceConfig, ReduceConfig::global_memory_size and semaphore_size. `input_vector`: how many values a thread reads
/// at once, where they lie together.
Staging staging(const Device& device, const ReducePlan& plan, std::int64_t accumulator_bytes,
                std::int64_t input_vector = 4) {
  constexpr std::int64_t kMaxThreads = 512;  // mnt_wrapper::MAX_NUM_THREADS
  constexpr std::int64_t kWarp = 32, kMinValues = 16, kMaxValues = 256, kVector = 4;
  std::int64_t dim0 = plan.fastest_is_reduced ? plan.inputs : plan.outputs;
  const std::int64_t dim1 = plan.fastest_is_reduced ? plan.outputs : plan.inputs;
  std::int64_t output_vector = 1;
  if (plan.fastest_is_contiguous) {
    if (plan.fastest_is_reduced && dim0 > 128 && plan.merged_dims == 1) {
      dim0 /= input_vector;
    } else if (!plan.fastest_is_reduced) {
      output_vector = kVector;
      while (plan.outputs % output_vector != 0) output_vector /= 2;
      dim0 /= output_vector;
    }
  }
  const std::int64_t max_threads = kMaxThreads / output_vector;
  const std::int64_t dim0_pow2 = dim0 < max_threads ? last_pow2(dim0) : max_threads;
  const std::int64_t dim1_pow2 = dim1 < max_threads ? last_pow2(dim1) : max_threads;
  std::int64_t width = std::min(dim0_pow2, kWarp);
  const std::int64_t height = std::min(dim1_pow2, max_threads / width);
  width = std::min(dim0_pow2, max_threads / height);

  std::int64_t step_input = 1, step_output = 1;
  (plan.fastest_is_reduced ? step_input : step_output) *= width;
  const auto values_per_thread = [&] { return divide_up(plan.inputs, step_input); };
  const bool block_y_reduces = values_per_thread() >= height * 16 || values_per_thread() >= kMaxValues;
  (block_y_reduces ? step_input : step_output) *= height;
  const std::int64_t target_grid = device.sm_count * (max_threads_per_sm(device) / (width * height));
  const std::int64_t grid = divide_up(plan.outputs / output_vector, step_output);
  if (!block_y_reduces || values_per_thread() < kMaxValues || grid > target_grid) return {};
  const std::int64_t ctas = std::max(std::min(divide_up(target_grid, grid), divide_up(values_per_thread(), kMinValues)),
                                     divide_up(values_per_thread(), kMaxValues));
  if (ctas <= 1) return {};
  std::int64_t buffer = checked_product(accumulator_bytes * ctas, plan.outputs);
  if (!plan.fastest_is_reduced) buffer = checked_product(buffer, width * output_vector);
  return {buffer, 4 * grid};
}

/// Merges dimensions as TensorIterator::coalesce_dimensions does, for the reductions that occur: a reduced outer part
/// and a kept inner one, or the other way round.
ReducePlan plan_of(const Tensor& x, unsigned reduced_mask) {
  ReducePlan plan;
  int fastest = -1;
  std::int64_t fastest_stride = kSizeLimit;
  int runs = 0;
  bool previous = false;
  for (int i = 0; i < x.ndim(); ++i) {
    const bool reduced = (reduced_mask >> i) & 1U;
    (reduced ? plan.inputs : plan.outputs) *= x.size(i);
    if (x.size(i) == 1) continue;
    if (runs == 0 || reduced != previous) ++runs;
    previous = reduced;
    if (x.strides()[i] < fastest_stride) {
      fastest_stride = x.strides()[i];
      fastest = i;
    }
  }
  plan.fastest_is_reduced = fastest < 0 || ((reduced_mask >> fastest) & 1U) || plan.outputs == 1;
  plan.fastest_is_contiguous = fastest_stride <= 1;
  plan.merged_dims = std::max(runs, 1);
  return plan;
}

unsigned mask_of(const Tensor& x, const std::vector<int>& dims) {
  unsigned mask = 0;
  for (int dim : dims) mask |= 1U << static_cast<unsigned>(dim < 0 ? dim + x.ndim() : dim);
  return mask;
}

Shape reduced_sizes(const Shape& sizes, unsigned mask, bool keepdim) {
  Shape result;
  for (int i = 0; i < sizes.ndim(); ++i) {
    if (!((mask >> i) & 1U))
      result.push_back(sizes[i]);
    else if (keepdim)
      result.push_back(1);
  }
  return result;
}

Tensor reduce_masked(Op op, const Tensor& x, unsigned mask, bool keepdim, DType dtype) {
  Context& context = x.context();
  Tensor result = empty(context, op, reduced_sizes(x.sizes(), mask, keepdim), dtype);
  reads(op, result, {&x});
  // What is counted is read in a copy of the result's type (ReduceOps.cpp, make_reduction).
  Tensor as_integers;
  const bool is_counted = x.dtype() == DType::boolean || (op == Op::sum && !is_floating_point(x.dtype()));
  if (is_counted && x.dtype() != dtype) as_integers = empty(context, Op::to_copy, x.sizes(), dtype);
  // Halves and floats accumulate in float32, integers in their own type (AccumulateType.h); a maximum needs no more.
  const std::int64_t accumulator =
      op == Op::maximum ? element_size(dtype) : std::max<std::int64_t>(element_size(dtype), 4);
  stage(context, op, staging(context.device, plan_of(x, mask), accumulator));
  return result;
}

/// A reduction's result of x of `sizes`, with the dimensions that are gone as ones (unsqueeze_multiple).
Tensor restored(const Tensor& x, const Shape& sizes, std::int64_t mask) {
  Tensor kept = x;
  for (int i = 0; x.ndim() < sizes.ndim() && i < sizes.ndim(); ++i)
    if ((mask >> i) & 1) kept = unsqueeze(kept, i);
  return kept;
}

/// sum's gradient: the incoming one, expanded (sum_backward).
Tensor expand_reduced(const Tensor& grad, const Shape& sizes, std::int64_t mask, bool keepdim) {
  return expand(keepdim ? grad : restored(grad, sizes, mask), sizes);
}

void remember(Record& record, const Tensor& x, unsigned mask, bool keepdim) {
  if (!record) return;
  record->sizes = x.sizes();
  record->integers[0] = mask;
  record->integers[1] = keepdim;
}

}  // namespace

Tensor reduce(Op op, const Tensor& x, const std::vector<int>& dims, bool keepdim, DType dtype) {
  return reduce_masked(op, x, mask_of(x, dims), keepdim, dtype);
}

// ReduceOps.cpp, get_allany_iter: on CUDA the kernel reads any type
Tensor all(Op op, const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  const unsigned mask = mask_of(x, dims);
  Tensor result = empty(x.context(), op, reduced_sizes(x.sizes(), mask, keepdim), DType::boolean);
  reads(op, result, {&x});
  stage(x.context(), op, staging(x.context().device, plan_of(x, mask), 1));
  return result;
}

// Under autocast it is called with dtype=float32 (fp32_set_opt_dtype), and reads halves as they are.
Tensor sum(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  Record record(Op::sum,
                [](Backward& b) {
                  b.give(0, expand_reduced(b.grad(), b.node.sizes, b.node.integers[0], b.node.integers[1] != 0));
                },
                {&x});
  const unsigned mask = mask_of(x, dims);
  remember(record, x, mask, keepdim);
  const bool to_float = is_half(x.dtype()) && x.context().autocast.enabled;
  const DType dtype = to_float ? DType::float32 : is_floating_point(x.dtype()) ? x.dtype() : DType::int64;
  return record.output(reduce_masked(Op::sum, x, mask, keepdim, dtype));
}

Tensor linalg_vector_norm(const Tensor& x, bool keepdim) { return linalg_vector_norm(x, {-1}, keepdim); }

Tensor linalg_vector_norm(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  // linalg_vector_norm_backward, ord 2: (self / norm).masked_fill_(norm == 0, 0) * grad
  Record record(Op::linalg_vector_norm,
                [](Backward& b) {
                  const Shape& sizes = b.saved(0).sizes();
                  const Tensor norm = restored(b.saved(1), sizes, b.node.integers[0]);
                  const Tensor unit = div(b.saved(0), norm);
                  const Tensor zero = pointwise(Op::eq, {&norm}, DType::boolean);
                  b.give(0, mul(unit, restored(b.grad(), sizes, b.node.integers[0])));
                },
                {&x});
  const unsigned mask = mask_of(x, dims);
  if (record) record->integers[0] = mask;
  record.save(x);
  Tensor norm = reduce_masked(Op::linalg_vector_norm, x, mask, keepdim,
                              x.context().autocast.enabled ? DType::float32 : x.dtype());
  record.save_output(norm);
  return record.output(std::move(norm));
}

Tensor amax(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  // scale_grad_by_count (FunctionsManual.cpp): (grad * mask) / mask.sum(dims, true), mask where x is the maximum
  Record record(Op::max,
                [](Backward& b) {
                  const Tensor& self = b.saved(0);
                  const unsigned reduced = static_cast<unsigned>(b.node.integers[0]);
                  const Tensor grad = restored(b.grad(), self.sizes(), reduced),
                               largest = restored(b.saved(1), self.sizes(), reduced);
                  const Tensor mask = pointwise(Op::eq, {&largest, &self}, DType::boolean);
                  const Tensor product = pointwise(Op::mul, {&grad, &mask}, grad.dtype());
                  const Tensor count = reduce_masked(Op::sum, mask, reduced, true, DType::int64);
                  b.give(0, pointwise(Op::div, {&product, &count}, grad.dtype()));
                },
                {&x});
  const unsigned mask = mask_of(x, dims);
  if (record) record->integers[0] = mask;
  record.save(x);
  Tensor result = reduce_masked(Op::maximum, x, mask, keepdim, x.dtype());
  record.save_output(result);
  return record.output(std::move(result));
}

Tensor sum_all(const Tensor& x) {
  std::vector<int> dims(static_cast<std::size_t>(x.ndim()));
  std::iota(dims.begin(), dims.end(), 0);
  return sum(x, dims, false);
}

namespace {

Tensor mean_masked(const Tensor& x, unsigned mask, bool keepdim) {
  // mean_backward: the sum's, divided by the count: a new tensor of the input's size.
  Record record(
      Op::mean,
      [](Backward& b) {
        b.give(0, div_scalar(expand_reduced(b.grad(), b.node.sizes, b.node.integers[0], b.node.integers[1] != 0)));
      },
      {&x});
  remember(record, x, mask, keepdim);
  return record.output(reduce_masked(Op::mean, x, mask, keepdim, x.dtype()));
}

unsigned every_dim(const Tensor& x) { return (1U << static_cast<unsigned>(x.ndim())) - 1; }

}  // namespace

Tensor mean(const Tensor& x, int dim, bool keepdim) { return mean_masked(x, mask_of(x, {dim}), keepdim); }

Tensor mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  return mean_masked(x, mask_of(x, dims), keepdim);
}

Tensor mean_all(const Tensor& x) { return mean_masked(x, every_dim(x), false); }

void mean_into(const Tensor& result, const Tensor& x) {
  reads(Op::mean, result, {&x});
  stage(x.context(), Op::mean,
        staging(x.context().device, plan_of(x, every_dim(x)), std::max<std::int64_t>(element_size(result.dtype()), 4)));
}

// --- variances: ReduceOps.cpp, std_var_out; cuda/ReduceMomentKernel.cu ---

namespace {

/// WelfordOps with two values a thread: blocks leave one another a mean, squares and a count of two types.
void stage_moments(Op op, const Tensor& x, unsigned mask) {
  constexpr std::int64_t kWelford = 16;
  stage(x.context(), op, staging(x.context().device, plan_of(x, mask), kWelford, 2));
}

Tensor variance(Op op, const Tensor& x, unsigned mask, bool keepdim) {
  Tensor result = empty(x.context(), op, reduced_sizes(x.sizes(), mask, keepdim), x.dtype());
  reads(op, result, {&x});
  stage_moments(op, x, mask);
  return result;
}

/// var_backward: (2 / dof) * grad * (self - self.mean(dim, true)), what stands on the right first.
Tensor variance_gradient(const Tensor& grad, const Tensor& self, std::int64_t mask) {
  const Tensor wide = restored(grad, self.sizes(), mask);
  const Tensor mean = reduce_masked(Op::mean, self, static_cast<unsigned>(mask), true, self.dtype());
  const Tensor centred = sub(self, mean);
  const Tensor scaled = mul_scalar(wide);
  return mul(scaled, centred);
}

}  // namespace

Tensor var(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  Record record(Op::var, [](Backward& b) { b.give(0, variance_gradient(b.grad(), b.saved(0), b.node.integers[0])); },
                {&x});
  const unsigned mask = mask_of(x, dims);
  if (record) record->integers[0] = mask;
  record.save(x);
  return record.output(variance(Op::var, x, mask, keepdim));
}

Tensor standard_deviation(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  // std_backward: var_backward of (grad / (result * 2)).masked_fill_(result == 0, 0)
  const BackwardFunction backward = [](Backward& b) {
    Tensor of_variance;
    {
      const Tensor twice = mul_scalar(b.saved(1));
      of_variance = div(b.grad(), twice);
      const Tensor zero = pointwise(Op::eq, {&b.saved(1)}, DType::boolean);
    }
    b.give(0, variance_gradient(of_variance, b.saved(0), b.node.integers[0]));
  };
  Record record(Op::std, backward, {&x});
  const unsigned mask = mask_of(x, dims);
  if (record) record->integers[0] = mask;
  record.save(x);
  Tensor result = variance(Op::std, x, mask, keepdim);
  record.save_output(result);
  return record.output(std::move(result));
}

TensorList var_mean(const Tensor& x, const std::vector<int>& dims, bool keepdim) {
  const BackwardFunction backward = [](Backward& b) {
    const Tensor& self = b.saved(0);
    const std::int64_t mask = b.node.integers[0];
    Tensor gradient = b.grad(0) ? variance_gradient(b.grad(0), self, mask) : Tensor();
    if (b.grad(1)) {
      const Tensor of_mean = div_scalar(expand(restored(b.grad(1), self.sizes(), mask), self.sizes()));
      gradient = gradient ? add(gradient, of_mean) : of_mean;
    }
    b.give(0, std::move(gradient));
  };
  Record record(Op::var, backward, {&x});
  const unsigned mask = mask_of(x, dims);
  if (record) record->integers[0] = mask;
  record.save(x);
  const Shape sizes = reduced_sizes(x.sizes(), mask, keepdim);
  Tensor variance = empty(x.context(), Op::var, sizes, x.dtype()), mean = empty(x.context(), Op::var, sizes, x.dtype());
  reads(Op::var, mean, {&x});
  stage_moments(Op::var, x, mask);
  TensorList results;
  results.push_back(record.output(std::move(variance)));
  results.push_back(record.output(std::move(mean)));
  return results;
}

Tensor sum_to(const Tensor& x, const Shape& sizes) {
  const int leading = x.ndim() - sizes.ndim();
  unsigned mask = (1U << static_cast<unsigned>(leading)) - 1;
  for (int i = leading; i < x.ndim(); ++i)
    if (sizes[i - leading] == 1 && x.size(i) != 1) mask |= 1U << static_cast<unsigned>(i);
  const Tensor reduced = mask == 0 ? x : reduce_masked(Op::sum, x, mask, true, x.dtype());
  return leading > 0 ? view(reduced, sizes) : reduced;
}

}  // namespace oometer
