#include "ops/chunked_log_probs.h"

#include <algorithm>

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

constexpr std::int64_t kTokens = 4096;  // TOKEN_CHUNK_SIZE

/// The product of a tile of one buffer with a part of the hidden states or the weight: torch.mm(out=...), which
/// autocast leaves alone, and torch.addmm(acc, a, b, out_dtype=torch.float32, out=acc).
void multiply(Context& context, Op op, std::int64_t m, std::int64_t n, std::int64_t k, DType dtype, DType result) {
  const GemmWorkspace workspace(context);
  const std::int64_t read = checked_product(checked_product(m, k) + checked_product(k, n), element_size(dtype));
  gemm_kernel(context, op, {1, m, n, k, dtype, read, checked_product(checked_product(m, n), element_size(result))});
}

/// A kernel of Triton that reads a tile, and writes over it in backward.
void fold(Context& context, std::int64_t tokens, std::int64_t columns, DType dtype, bool writes) {
  const std::int64_t bytes = checked_product(checked_product(tokens, columns), element_size(dtype));
  context.work({.op = static_cast<OpId>(Op::chunked_log_probs),
                .kind = WorkKind::reduction,
                .dtype = dtype,
                .read = bytes,
                .written = writes ? bytes : 0});
}

/// tile.add_(bias[start:end].to(compute_dtype))
void add_bias(const Tensor& tile, const Tensor& bias, std::int64_t start) {
  const Tensor part = to(slice(bias, 0, start, tile.size(1)), tile.dtype());
  kernel(Op::add, {&tile, &part}, tile);
}

Tensor tile_of(const Tensor& mm_buf, std::int64_t tokens, std::int64_t columns) {
  return slice(slice(mm_buf, 0, 0, tokens), 1, 0, columns);
}

void chunked_log_probs_backward(Backward& b) {
  Context& context = b.context;
  const bool has_bias = b.node.integers[1] != 0;
  const Tensor hidden = b.saved(0), weight = b.saved(1), bias = has_bias ? b.saved(2) : Tensor();
  const DType compute = b.node.dtype;
  const std::int64_t chunk = b.node.integers[0], n = hidden.size(0), width = hidden.size(1), classes = weight.size(0);
  Tensor grad_hidden, grad_weight, grad_bias;
  if (b.wants(0)) grad_hidden = empty(context, Op::zeros, hidden.sizes(), DType::float32);
  if (b.wants(1)) grad_weight = empty(context, Op::zeros, weight.sizes(), DType::float32);
  if (has_bias && b.wants(2)) grad_bias = empty(context, Op::zeros, bias.sizes(), DType::float32);
  const Tensor mm_buf = empty(context, Op::empty, {std::min(n, kTokens), chunk}, compute);
  Tensor hidden_chunk, w_chunk;
  for (std::int64_t token = 0; token < n; token += kTokens) {
    const std::int64_t tokens = std::min(kTokens, n - token);
    hidden_chunk = to(slice(hidden, 0, token, tokens), compute);
    for (std::int64_t start = 0; start < classes; start += chunk) {
      const std::int64_t columns = std::min(chunk, classes - start);
      w_chunk = to(slice(weight, 0, start, columns), compute);
      multiply(context, Op::mm, tokens, columns, width, compute, compute);
      if (has_bias) add_bias(tile_of(mm_buf, tokens, columns), bias, start);
      fold(context, tokens, columns, compute, true);
      if (grad_hidden) multiply(context, Op::addmm, tokens, width, columns, compute, DType::float32);
      if (grad_weight) multiply(context, Op::addmm, columns, width, tokens, compute, DType::float32);
      if (grad_bias) const Tensor sum = reduce(Op::sum, tile_of(mm_buf, tokens, columns), {0}, false, DType::float32);
    }
  }
  Tensor of_hidden, of_weight, of_bias;
  if (grad_hidden) of_hidden = to(grad_hidden, hidden.dtype());
  if (grad_weight) of_weight = to(grad_weight, weight.dtype());
  if (grad_bias) of_bias = to(grad_bias, bias.dtype());
  if (of_hidden) b.give(0, std::move(of_hidden));
  if (of_weight) b.give(1, std::move(of_weight));
  if (of_bias) b.give(2, std::move(of_bias));
}

}  // namespace

ChunkedLogProbs chunked_log_probs(const Tensor& hidden, const Tensor& weight, const Tensor& targets, std::int64_t chunk,
                                  const LogProbOutputs& outputs, const Tensor& bias) {
  Record record = bias ? Record(Op::chunked_log_probs, chunked_log_probs_backward, {&hidden, &weight, &bias})
                       : Record(Op::chunked_log_probs, chunked_log_probs_backward, {&hidden, &weight});
  Context& context = hidden.context();
  const NoGrad no_grad(context);
  const DType compute = context.autocast.enabled ? context.autocast.dtype : hidden.dtype();
  const std::int64_t n = hidden.size(0), width = hidden.size(1), classes = weight.size(0);
  const auto statistic = [&](Op op) { return empty(context, op, {n}, DType::float32); };
  ChunkedLogProbs results;
  {
    const Tensor running_max = statistic(Op::fill), sum_exp = statistic(Op::zeros), x_sum_exp = statistic(Op::zeros),
                 sq_sum_exp = statistic(Op::zeros), z_sum = statistic(Op::zeros),
                 max_before_target = statistic(Op::fill), target_logit = statistic(Op::zeros);
    const Tensor mm_buf = empty(context, Op::empty, {std::min(n, kTokens), chunk}, compute);
    Tensor hidden_chunk;
    for (std::int64_t token = 0; token < n; token += kTokens) {
      const std::int64_t tokens = std::min(kTokens, n - token);
      hidden_chunk = to(slice(hidden, 0, token, tokens), compute);
      for (std::int64_t start = 0; start < classes; start += chunk) {
        const std::int64_t columns = std::min(chunk, classes - start);
        {
          const Tensor w_chunk = to(slice(weight, 0, start, columns), compute);
          multiply(context, Op::mm, tokens, columns, width, compute, compute);
        }
        if (bias) add_bias(tile_of(mm_buf, tokens, columns), bias, start);
        fold(context, tokens, columns, compute, false);
      }
    }
    Tensor log_z;
    {
      const Tensor logarithm = pointwise(Op::log, {&sum_exp}, DType::float32);
      log_z = add(running_max, logarithm);
    }
    results.log_probs = sub(target_logit, log_z);
    if (outputs.entropy) {
      const Tensor mean = div(x_sum_exp, sum_exp);
      results.entropy = sub(log_z, mean);
    }
    if (outputs.mean_logits) results.mean_logits = div_scalar(z_sum);
    if (outputs.is_top1) {
      const Tensor is_largest = pointwise(Op::ge, {&target_logit, &running_max}, DType::boolean);
      const Tensor is_first = pointwise(Op::gt, {&target_logit, &max_before_target}, DType::boolean);
      results.is_top1 = pointwise(Op::bitwise_and, {&is_largest, &is_first}, DType::boolean);
    }
    record.save(hidden);
    record.save(weight);
    if (bias) record.save(bias);
    record.save(targets);
    record.save(log_z);
    if (outputs.entropy) record.save_output(results.entropy);
    if (record) {
      record->dtype = compute;
      record->integers[0] = chunk;
      record->integers[1] = static_cast<bool>(bias);
    }
  }
  results.log_probs = record.output(std::move(results.log_probs));
  if (outputs.entropy) results.entropy = record.output(std::move(results.entropy));
  return results;
}

}  // namespace oometer
