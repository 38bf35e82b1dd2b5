#include "ops/liger.h"

#include <algorithm>

#include "ops/launch.h"
#include "ops/ops.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

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

namespace {

/// A row of a parameter's gradient for each multiprocessor.
Tensor partial_gradients(const Backward& b, std::int64_t width) {
  return empty(b.context, Op::empty, {b.context.device.sm_count, width}, DType::float32);
}

/// _dW.sum(dim=0).to(W.dtype)
void give_sum(Backward& b, unsigned input, const Tensor& partial) {
  const Tensor total = reduce(Op::sum, partial, {0}, false, DType::float32);
  b.give(input, to(total, b.node.dtype));
}

/// rms_norm_backward: dX is written over dY, or has memory of its own.
template <bool in_place>
void rms_norm_backward(Backward& b) {
  const Tensor gradient = contiguous(b.grad());
  Tensor partial;
  if (b.wants(1)) partial = partial_gradients(b, gradient.size(-1));
  const Tensor dx = in_place ? gradient : empty_like(Op::zeros_like, gradient);
  kernel(Op::liger_rms_norm, {&gradient, &b.saved(0), &b.saved(1)}, dx);
  if (partial) give_sum(b, 1, partial);
  if (b.wants(0)) b.give(0, view(rows_of(dx), dx.sizes()));
}

}  // namespace

Tensor liger_rms_norm(const Tensor& x_in, const Tensor& weight, bool in_place) {
  Record record(Op::liger_rms_norm, in_place ? rms_norm_backward<true> : rms_norm_backward<false>, {&x_in, &weight});
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

Tensor liger_layer_norm(const Tensor& x_in, const Tensor& weight, const Tensor& bias) {
  Record record(Op::liger_layer_norm,
                [](Backward& b) {
                  const Tensor gradient = contiguous(b.grad()), &x = b.saved(0);
                  Tensor weights, biases;
                  if (b.wants(1)) weights = partial_gradients(b, x.size(-1));
                  if (b.wants(2)) biases = partial_gradients(b, x.size(-1));
                  const Tensor dx = empty(b.context, Op::empty, x.sizes(), x.dtype());
                  kernel(Op::liger_layer_norm, {&gradient, &x, &b.saved(1)}, dx);
                  if (weights) give_sum(b, 1, weights);
                  if (biases) give_sum(b, 2, biases);
                  if (b.wants(0)) b.give(0, view(dx, gradient.sizes()));
                },
                {&x_in, &weight, &bias});
  Context& context = x_in.context();
  const NoGrad no_grad(context);
  const Tensor x = rows_of(contiguous(x_in));
  const Tensor y = empty(context, Op::empty, x.sizes(), x.dtype());
  const Tensor mean = empty(context, Op::empty, {x.size(0)}, DType::float32);
  const Tensor rstd = empty(context, Op::empty, {x.size(0)}, DType::float32);
  kernel(Op::liger_layer_norm, {&x, &weight, &bias}, y);
  if (record) record->dtype = weight.dtype();
  for (const Tensor* saved : {&x, &weight, &bias, &mean, &rstd}) record.save(*saved);
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

namespace {

/// swiglu_backward writes da over a, db over b.
template <bool scales>
void silu_mul_backward(Backward& b) {
  const Shape sizes = b.grad().sizes();
  Tensor gradient = contiguous(b.grad());
  if (scales) gradient = mul_scalar(gradient);
  for (unsigned i : {0u, 1u})
    if (b.wants(i)) {
      kernel(Op::liger_silu_mul, {&gradient, &b.saved(i)}, b.saved(i));
      b.give(i, view(b.saved(i), sizes));
    }
}

}  // namespace

Tensor liger_silu_mul(const Tensor& a_in, const Tensor& b_in, bool scales) {
  Record record(Op::liger_silu_mul, scales ? silu_mul_backward<true> : silu_mul_backward<false>, {&a_in, &b_in});
  const NoGrad no_grad(a_in.context());
  const Tensor a = rows_of(contiguous(a_in)), b = rows_of(contiguous(b_in));
  Tensor c = empty_like(Op::empty, a);
  kernel(Op::liger_silu_mul, {&a, &b}, c);
  if (scales) c = mul_scalar(c);
  record.save(a);
  record.save(b);
  return record.output(view(c, a_in.sizes()));
}

Tensor liger_relu_squared(const Tensor& x_in) {
  Record record(Op::liger_relu_squared,
                [](Backward& b) {
                  const Tensor gradient = contiguous(b.grad());
                  const Tensor dx = empty_like(Op::empty, gradient);
                  kernel(Op::liger_relu_squared, {&gradient, &b.saved(0)}, dx);
                  b.give(0, dx);
                },
                {&x_in});
  const NoGrad no_grad(x_in.context());
  const Tensor x = contiguous(x_in);
  const Tensor y = empty_like(Op::empty, x);
  kernel(Op::liger_relu_squared, {&x}, y);
  record.save(x);
  return record.output(y);
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
  FusedLinearCrossEntropy(const Tensor& input, const Tensor& weight, std::int64_t chunk_mem_const)
      : input_(input), weight_(weight) {
    const std::int64_t tokens = input.size(0);
    const std::int64_t factor = divide_up(weight.size(0), checked_product(chunk_mem_const, input.size(1)));
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
                                        const LigerConfig& kernels) {
  Record record(Op::liger_fused_linear_cross_entropy,
                [](Backward& b) {
                  compare_with_one(b);
                  if (b.wants(0)) b.give(0, b.saved(0));
                  if (b.wants(1) && b.node.saved_count > 1) b.give(1, b.saved(1));
                },
                {&input, &weight});
  Context& context = input.context();
  const NoGrad no_grad(context);
  const FusedLinearCrossEntropy chunks(input, weight, kernels.chunk_mem_const);
  const std::int64_t tokens = input.size(0);
  const Tensor grad_input = empty_like(Op::zeros_like, input);
  Tensor grad_weight;  // none where only the head trains: `if input_requires_grad`
  if (input.requires_grad() && weight.requires_grad())
    grad_weight = empty_like(Op::zeros_like, weight, kernels.accumulates_in_fp32 ? DType::float32 : weight.dtype());
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

namespace {

/// Rows of one expert that a program takes (fused_moe.py: BLOCK_M_TOKEN).
constexpr std::int64_t kTileRows = 64;

/// compute_routing_metadata: which rows an expert gets, sorted by expert.
struct MoeRouting {
  MoeRouting(Context& context, std::int64_t tokens, std::int64_t top_k, std::int64_t experts) {
    const std::int64_t selected = checked_product(tokens, top_k);
    const std::int64_t tiles = divide_up(tokens, std::max<std::int64_t>(1, 1024 / next_power_of_2(top_k)));
    const auto int32 = [&](const Shape& sizes) { return empty(context, Op::empty, sizes, DType::int32); };
    const Tensor tile_expert_counts = int32({experts, tiles});
    expert_token_count = reduce(Op::sum, tile_expert_counts, {1}, false, DType::int32);
    expert_start_idx = int32({experts + 1});
    const Tensor expert_tile_offset = int32({experts + 1});
    const std::int64_t usual = selected / experts, more = selected % experts;
    const std::int64_t row_tiles =
        more * divide_up(usual + 1, kTileRows) + (experts - more) * divide_up(usual, kTileRows);
    tile_row_start = int32({row_tiles});
    tile_expert = int32({row_tiles});
    s_scatter_idx = int32({selected});
    s_reverse_scatter_idx = int32({selected});
    x_gather_idx = int32({selected});
  }

  Tensor expert_token_count, expert_start_idx, tile_row_start, tile_expert, s_scatter_idx, s_reverse_scatter_idx,
      x_gather_idx;
};

void fused_moe_backward(Backward& b) {
  const Tensor gradient = contiguous(b.grad());
  const Tensor &x = b.saved(0), &gate_up_proj = b.saved(1), &down_proj = b.saved(2), &pre_act = b.saved(3);
  const std::int64_t tokens = x.size(0), hidden = x.size(1), selected = pre_act.size(0), width = pre_act.size(1);
  const DType dtype = gradient.dtype();
  const auto matrix = [&](std::int64_t columns) { return empty(b.context, Op::empty, {selected, columns}, dtype); };
  const auto product = [&](std::int64_t rows, std::int64_t columns, std::int64_t inner,
                           std::initializer_list<const Tensor*> read, const Tensor& written) {
    gemm_kernel(b.context, Op::liger_fused_moe,
                {1, rows, columns, inner, dtype, touched(read), touched(written), false});
  };
  Tensor d_pre_act = matrix(width), weighted_act = matrix(width / 2);
  const Tensor ds = empty(b.context, Op::zeros, {selected}, dtype);
  product(selected, width / 2, hidden, {&gradient, &down_proj, &pre_act}, d_pre_act);
  const Tensor ddown_proj = empty_like(Op::zeros_like, down_proj);
  product(hidden, width / 2, selected, {&weighted_act, &gradient}, ddown_proj);
  Tensor dx_expanded = matrix(hidden);
  product(selected, hidden, width, {&d_pre_act, &gate_up_proj}, dx_expanded);
  const Tensor dx = empty(b.context, Op::zeros, {tokens, hidden}, dtype);
  const Tensor dgate_up_proj = empty_like(Op::zeros_like, gate_up_proj);
  product(width, hidden, selected, {&x, &d_pre_act}, dgate_up_proj);
  for (Tensor* name : {&d_pre_act, &weighted_act, &dx_expanded}) name->reset();
  if (b.wants(0)) b.give(0, dx);
  if (b.wants(1)) b.give(1, dgate_up_proj);
  if (b.wants(2)) b.give(2, ddown_proj);
  if (b.wants(3)) b.give(3, to(view(ds, b.input_sizes(3)), b.input_dtype(3)));  // the engine's cast
}

}  // namespace

Tensor liger_fused_moe(const Tensor& x_in, const Tensor& gate_up_proj, const Tensor& down_proj,
                       const Tensor& top_k_index, const Tensor& top_k_weights) {
  Record record(Op::liger_fused_moe, fused_moe_backward, {&x_in, &gate_up_proj, &down_proj, &top_k_weights});
  Context& context = x_in.context();
  const NoGrad no_grad(context);
  const Tensor x = contiguous(x_in);
  const std::int64_t tokens = x.size(0), hidden = x.size(1), top_k = top_k_index.size(1);
  const std::int64_t selected = checked_product(tokens, top_k), width = gate_up_proj.size(1);
  const MoeRouting routing(context, tokens, top_k, gate_up_proj.size(0));
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    return empty(context, Op::empty, {rows, columns}, x.dtype());
  };
  const auto product = [&](std::int64_t columns, std::int64_t inner, std::initializer_list<const Tensor*> read,
                           const Tensor& written) {
    gemm_kernel(context, Op::liger_fused_moe,
                {1, selected, columns, inner, x.dtype(), touched(read), touched(written), false});
  };
  const Tensor pre_act = matrix(selected, width), post_act = matrix(selected, width / 2);
  product(width, hidden, {&x, &gate_up_proj}, pre_act);
  const Tensor y = matrix(selected, hidden);
  product(hidden, width / 2, {&post_act, &down_proj}, y);
  const Tensor topk_weights_flat = contiguous(reshape(top_k_weights, {selected}));
  const Tensor out = matrix(tokens, hidden);
  for (const Tensor* saved :
       {&x, &gate_up_proj, &down_proj, &pre_act, &topk_weights_flat, &routing.expert_start_idx, &routing.x_gather_idx,
        &routing.s_scatter_idx, &routing.s_reverse_scatter_idx, &routing.tile_row_start, &routing.tile_expert})
    record.save(*saved);
  return record.output(out);
}

}  // namespace oometer
