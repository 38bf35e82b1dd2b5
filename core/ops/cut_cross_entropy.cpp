#include "ops/cut_cross_entropy.h"

#include <functional>
#include <memory>
#include <utility>

#include "ops/experts.h"
#include "ops/ops.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

constexpr std::int64_t kRows = 128;    // tokens, or classes, that share a lock
constexpr std::int64_t kColumns = 64;  // of a lock in backward

// _build_flat_valids (utils.py): where the scored labels are, among all tokens.
Tensor flat_valids(const Tensor& labels, std::int64_t scored) {
  const Tensor targets = slice(labels, -1, 1, labels.size(-1) - 1);
  Tensor valids;
  {
    Tensor indices;
    {
      const Tensor counts = pointwise(Op::ne, {&targets}, DType::boolean);
      indices = nonzero(counts, scored);
    }
    valids = to(indices, DType::int32);
  }
  Tensor sums = empty(labels.context(), Op::sum, {scored}, DType::int64);
  const Tensor wide = to(valids, DType::int64);  // no kernel sums int32 to int64
  return sums;
}

/// The products of Triton's kernels, whose tiles never reach memory.
void multiply(const Tensor& e, const Tensor& c, std::int64_t tokens, std::int64_t written) {
  gemm_kernel(e.context(), Op::cut_cross_entropy,
              {1, tokens, c.size(0), c.size(1), e.dtype(), touched({&e, &c}), written});
}

// cce_backward_kernel (cce_backward.py); sort_logit_avg is compiled, and allocates what it would without.
void cut_cross_entropy_backward(Backward& b) {
  const Tensor &e = b.saved(0), &c = b.saved(1);
  const std::int64_t tokens = b.saved(2).size(0);
  Tensor order;  // vocab_ordering
  {
    const Tensor indices = sort(b.saved(5)).indices;
    order = to(indices, DType::int32);
  }
  Tensor de, dc;
  if (b.wants(0)) de = empty_like(Op::zeros_like, e);
  if (b.wants(1)) dc = empty_like(Op::zeros_like, c);
  const std::int64_t columns = divide_up(c.size(1), kColumns);
  Tensor de_locks, dc_locks;
  if (de) de_locks = empty(b.context, Op::zeros, {divide_up(tokens, kRows), columns}, DType::int32);
  if (dc) dc_locks = empty(b.context, Op::zeros, {divide_up(c.size(0), kRows), columns}, DType::int32);
  multiply(e, c, tokens, 0);  // the logits once more
  if (de) multiply(e, c, tokens, de.nbytes());
  if (dc) multiply(e, c, tokens, dc.nbytes());
  if (de) b.give(0, std::move(de));
  if (dc) b.give(1, std::move(dc));
}

}  // namespace

Tensor cut_cross_entropy(const Tensor& hidden_states, const Tensor& lm_head, const Tensor& labels,
                         std::int64_t scored) {
  const Tensor valids = flat_valids(labels, scored);
  const Tensor e = view(hidden_states, {labels.numel(), hidden_states.size(-1)});
  const Tensor targets = view(labels, {labels.numel()});
  Record record(Op::cut_cross_entropy, nullptr, {&e, &lm_head});
  if (record)  // ctx.params has valids too, as long as the node lives
    record->custom =
        std::make_unique<std::function<void(Backward&)>>([valids](Backward& b) { cut_cross_entropy_backward(b); });
  Context& context = e.context();
  const NoGrad no_grad(context);
  // cce_lse_forward_kernel (cce_lse_forward.py)
  const Tensor lse = empty(context, Op::fill, {scored}, DType::float32);
  Tensor logit_avg;
  {
    const Tensor locks = empty(context, Op::fill, {divide_up(scored, kRows)}, DType::int32);
    if (record) logit_avg = empty(context, Op::fill, {lm_head.size(0)}, DType::float32);
    multiply(e, lm_head, scored, 0);
  }
  const Tensor neg_dot = empty(context, Op::zeros, {scored}, DType::float32);  // the negative log-likelihood in the end
  Tensor loss = sum_all(neg_dot);
  record.save(e);
  record.save(lm_head);
  record.save(lse);
  record.save(targets);
  record.save(valids);
  record.save(logit_avg);
  return record.output(std::move(loss));
}

}  // namespace oometer
