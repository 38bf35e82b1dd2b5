#include "ops/logprob_entropy.h"

#include <cstdint>
#include <utility>

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// A kernel that reads the logits once; named as TRL's other one.
void read_rows(const Tensor& logits, std::int64_t written) {
  logits.context().work({.op = static_cast<OpId>(Op::chunked_log_probs),
                         .kind = WorkKind::reduction,
                         .dtype = logits.dtype(),
                         .read = logits.nbytes(),
                         .written = written});
}

}  // namespace

Tensor selective_log_softmax(const Tensor& logits, const Tensor& index) {
  Record record(Op::chunked_log_probs,
                [](Backward& b) {
                  const Tensor rows = b.saved(0);
                  Tensor grad_logits = empty(b.context, Op::chunked_log_probs, rows.sizes(), rows.dtype());
                  read_rows(rows, grad_logits.nbytes());
                  b.give(0, std::move(grad_logits));
                },
                {&logits});
  Context& context = logits.context();
  Tensor logprobs;
  {
    const NoGrad no_grad(context);
    const auto of_rows = [&] { return empty(context, Op::chunked_log_probs, index.sizes(), DType::float32); };
    logprobs = of_rows();
    const Tensor entropy = of_rows(), log_z = of_rows(), expected_logit = of_rows();
    read_rows(logits, 0);
    for (const Tensor* saved : {&logits, &index, &log_z, &expected_logit}) record.save(*saved);
  }
  return record.output(std::move(logprobs));
}

}  // namespace oometer
