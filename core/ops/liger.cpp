#include "ops/liger.h"

#include <algorithm>

#include "ops/ops.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

std::int64_t next_power_of_2(std::int64_t n) {
  std::int64_t power = 1;
  while (power < n) power *= 2;
  return power;
}

Tensor rows_of(const Tensor& x) { return view(x, {x.numel() / x.size(-1), x.size(-1)}); }

/// `target != ignore_index` and its sum, as a number.
Tensor counted_mask(const Tensor& target) {
  Tensor mask = pointwise(Op::ne, {&target}, DType::boolean);
  const Tensor count = sum_all(mask);
  return mask;
}

/// torch.equal(grad_output, torch.tensor(1.0, device=...)): nothing is multiplied where it is, else a kernel does it in
/// place.
void compare_with_one(Backward& b) {
  {
    const Tensor one = empty(b.context, Op::to_copy, {}, DType::float32);
    const Tensor equal = empty(b.context, Op::eq, {}, DType::boolean);
    const Tensor all = empty(b.context, Op::all, {}, DType::boolean);
  }
  b.grads.clear();
}

}  // namespace

Tensor liger_rms_norm(const Tensor& x_in, const Tensor& weight) {
  Record record(Op::liger_rms_norm,
                [](Backward& b) {
                  // rms_norm_backward: dX is written over dY; dW is a row of sums for each multiprocessor.
                  const Tensor gradient = contiguous(b.grad());
                  kernel(Op::liger_rms_norm, {&gradient, &b.saved(0), &b.saved(1)}, gradient);
                  if (b.wants(1)) {
                    const Tensor partial =
                        empty(b.context, Op::empty, {b.context.device.sm_count, gradient.size(-1)}, DType::float32);
                    const Tensor total = reduce(Op::sum, partial, {0}, false, DType::float32);
                    b.give(1, to(total, b.node.dtype));
                  }
                  if (b.wants(0)) b.give(0, view(rows_of(gradient), gradient.sizes()));
                },
                {&x_in, &weight});
  Context& context = x_in.context();
  const NoGrad no_grad(context);
  const Tensor x = rows_of(contiguous(x_in));
  const Tensor y = empty(context, Op::empty, x.sizes(), x.dtype());
  const Tensor rstd = empty(context, Op::empty, {x.size(0)}, DType::float32);
  kernel(Op::liger_rms_norm, {&x, &weight}, y);
  if (record) record->dtype = weight.dtype();
  record.save(x);
  record.save(weight);
  record.save(rstd);
  return record.output(view(y, x_in.sizes()));
}

std::pair<Tensor, Tensor> liger_rotary_pos_emb(const Tensor& query, const Tensor& key, const Tensor& cos,
                                               const Tensor& sin) {
  const auto turned = [](const Tensor& x) { return transpose(contiguous(transpose(x, 1, 2)), 1, 2); };
  Record record(Op::liger_rope,
                [](Backward& b) {
                  for (unsigned i : {0u, 1u})
                    if (b.wants(i)) {
                      kernel(Op::liger_rope, {&b.grad(i)}, b.grad(i));
                      b.give(i, transpose(contiguous(transpose(b.grad(i), 1, 2)), 1, 2));
                    }
                },
                {&query, &key});
  const NoGrad no_grad(query.context());
  Tensor q = turned(query), k = turned(key);
  for (const Tensor* x : {&q, &k}) kernel(Op::liger_rope, {x, &cos, &sin}, *x);
  record.save(cos);
  record.save(sin);
  q = record.output(std::move(q));
  k = record.output(std::move(k));
  return {std::move(q), std::move(k)};
}

Tensor liger_silu_mul(const Tensor& a_in, const Tensor& b_in) {
  Record record(Op::liger_silu_mul,
                [](Backward& b) {
                  // swiglu_backward writes da over a, db over b.
                  const Shape sizes = b.grad().sizes();
                  const Tensor gradient = contiguous(b.grad());
                  for (unsigned i : {0u, 1u})
                    if (b.wants(i)) {
                      kernel(Op::liger_silu_mul, {&gradient, &b.saved(i)}, b.saved(i));
                      b.give(i, view(b.saved(i), sizes));
                    }
                },
                {&a_in, &b_in});
  const NoGrad no_grad(a_in.context());
  const Tensor a = rows_of(contiguous(a_in)), b = rows_of(contiguous(b_in));
  const Tensor c = empty_like(Op::empty, a);
  kernel(Op::liger_silu_mul, {&a, &b}, c);
  record.save(a);
  record.save(b);
  return record.output(view(c, a_in.sizes()));
}

Tensor liger_cross_entropy(const Tensor& logits, const Tensor& target) {
  Record record(Op::liger_cross_entropy,
                [](Backward& b) {
                  compare_with_one(b);
                  b.give(0, b.saved(0));  // the gradient was written over the logits
                },
                {&logits});
  Context& context = logits.context();
  const NoGrad no_grad(context);
  const Tensor losses = empty(context, Op::zeros, {logits.size(0)}, logits.dtype());
  kernel(Op::liger_cross_entropy, {&logits, &target}, logits);
  const Tensor mask = counted_mask(target);
  for (int check : {0, 1}) {  // (target * target_mask).max() < classes, .min() >= 0
    (void)check;
    Tensor product = empty_like(Op::mul, target);
    const Tensor extreme = empty(context, Op::max, {}, DType::int64);
    product.reset();
    const Tensor holds = empty(context, Op::lt, {}, DType::boolean);
  }
  Tensor loss = sum_all(losses);
  record.save_output(logits);
  return record.output(std::move(loss));
}

namespace {

/// The parts of fused_linear_cross_entropy_forward that a chunk of tokens runs through.
class FusedLinearCrossEntropy {
 public:
  FusedLinearCrossEntropy(const Tensor& input, const Tensor& weight) : input_(input), weight_(weight) {
    const std::int64_t tokens = input.size(0);
    const std::int64_t factor = divide_up(weight.size(0), input.size(1));
    chunk_ = std::min(next_power_of_2(divide_up(tokens, factor)), tokens);
    // _can_use_mm_out: out= bypasses autocast.
    const Autocast& autocast = input.context().autocast;
    writes_into_buffer_ = input.dtype() == weight.dtype() && (!autocast.enabled || input.dtype() == autocast.dtype);
  }

  std::int64_t chunk() const { return chunk_; }
  bool writes_into_buffer() const { return writes_into_buffer_; }

  /// Tokens [start, start + length).
  void run(std::int64_t start, std::int64_t length, const Tensor& grad_weight) const {
    Context& context = input_.context();
    const Tensor x = slice(input_, 0, start, length);
    Tensor logits;
    if (writes_into_buffer_) {
      multiply(Op::mm, x, length);
      if (input_.requires_grad()) multiply(Op::mm, x, length);
    } else {
      logits = matmul(x, transpose(weight_, 0, 1));
      if (input_.requires_grad()) const Tensor gradient = matmul(logits, weight_);
    }
    const std::int64_t bytes = checked_product(checked_product(length, weight_.size(0)), element_size(x.dtype()));
    context.work({.op = static_cast<OpId>(Op::liger_fused_linear_cross_entropy),
                  .kind = WorkKind::reduction,
                  .dtype = x.dtype(),
                  .read = bytes,
                  .written = bytes});
    if (grad_weight) accumulate(grad_weight, x, logits ? logits.dtype() : input_.dtype());
  }

 private:
  /// A product over a chunk of logits, the weight and the chunk's input, which is one of these three.
  void multiply(Op op, const Tensor& x, std::int64_t length) const {
    Context& context = input_.context();
    const GemmWorkspace workspace(context);
    const std::int64_t classes = weight_.size(0), width = weight_.size(1);
    const std::int64_t logits = checked_product(checked_product(length, classes), element_size(x.dtype()));
    gemm_kernel(context, op, {1, length, classes, width, x.dtype(), touched({&x, &weight_}), logits});
  }

  void accumulate(const Tensor& grad_weight, const Tensor& x, DType dtype) const {
    Context& context = input_.context();
    const bool in_place = context.device.major >= 8 && is_half(dtype) &&
                          (grad_weight.dtype() == DType::float32 || grad_weight.dtype() == dtype);
    if (in_place) {  // torch.addmm(grad_weight, ..., out=grad_weight)
      const Tensor lowered = to(x, dtype);
      multiply(Op::addmm, lowered, x.size(0));
      return;
    }
    Tensor product;
    {
      const Tensor lowered = autocast_lower(x);
      product = empty(context, Op::mm, grad_weight.sizes(), dtype);
      multiply(Op::mm, lowered, x.size(0));
    }
    const Tensor as_float = to(product, DType::float32);
  }

  const Tensor &input_, &weight_;
  std::int64_t chunk_ = 1;
  bool writes_into_buffer_ = false;
};

}  // namespace

Tensor liger_fused_linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target,
                                        bool accumulates_in_fp32) {
  Record record(Op::liger_fused_linear_cross_entropy,
                [](Backward& b) {
                  compare_with_one(b);
                  if (b.wants(0)) b.give(0, b.saved(0));
                  if (b.wants(1) && b.node.saved_count > 1) b.give(1, b.saved(1));
                },
                {&input, &weight});
  Context& context = input.context();
  const NoGrad no_grad(context);
  const FusedLinearCrossEntropy chunks(input, weight);
  const std::int64_t tokens = input.size(0);
  const Tensor grad_input = empty_like(Op::zeros_like, input);
  Tensor grad_weight;  // none where only the head trains: `if input_requires_grad`
  if (input.requires_grad() && weight.requires_grad())
    grad_weight = empty_like(Op::zeros_like, weight, accumulates_in_fp32 ? DType::float32 : weight.dtype());
  const Tensor losses = empty(context, Op::zeros, {tokens}, DType::float32);
  const Tensor mask = counted_mask(target);
  Tensor logits;
  if (chunks.writes_into_buffer()) logits = empty(context, Op::empty, {chunks.chunk(), weight.size(0)}, input.dtype());
  for (std::int64_t start = 0; start < tokens; start += chunks.chunk())
    chunks.run(start, std::min(chunks.chunk(), tokens - start), grad_weight);
  logits.reset();
  Tensor loss = sum_all(losses);
  record.save_output(grad_input);
  if (grad_weight) {
    grad_weight = to(grad_weight, weight.dtype());
    record.save_output(grad_weight);
  }
  return record.output(std::move(loss));
}

}  // namespace oometer
