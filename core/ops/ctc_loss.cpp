#include "ops/ctc_loss.h"

#include <utility>

#include "ops/integers.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// Lengths of states and targets and where each sample's targets begin, taken to the device for a kernel.
struct CtcLengths {
  CtcLengths(Context& context, std::int64_t batch)
      : targets(integers(context, Op::to_copy, {batch})),
        states(integers(context, Op::to_copy, {batch})),
        offsets(integers(context, Op::to_copy, {batch})) {}
  ~CtcLengths() {
    states.reset();
    targets.reset();
  }
  CtcLengths(const CtcLengths&) = delete;
  CtcLengths& operator=(const CtcLengths&) = delete;

  Tensor targets, states, offsets;
};

void ctc_loss_backward(Backward& b) {
  constexpr Op op = Op::nll_loss_backward;
  const Tensor &log_probs = b.saved(0), &log_alpha = b.saved(2);
  const CtcLengths lengths(b.context, log_probs.size(1));
  Tensor grad;
  {
    const Tensor log_beta = empty(b.context, op, log_alpha.sizes(), log_alpha.dtype());
    grad = empty(b.context, op, log_probs.sizes(), log_probs.dtype());
  }
  b.give(0, std::move(grad));
}

}  // namespace

Tensor ctc_loss(const Tensor& log_probs, const Tensor& targets, std::int64_t targets_per_sample) {
  constexpr Op op = Op::nll_loss_forward;
  Context& context = log_probs.context();
  Record record(op, ctc_loss_backward, {&log_probs});
  record.save(log_probs);
  record.save(targets);
  const std::int64_t batch = log_probs.size(1);
  const CtcLengths lengths(context, batch);
  const Tensor log_alpha = empty(context, op, {batch, log_probs.size(0), 2 * targets_per_sample + 1}, DType::float32);
  Tensor neg_log_likelihood = empty(context, op, {batch}, DType::float32);
  record.save_output(log_alpha);
  record.save_output(neg_log_likelihood);
  return record.output(std::move(neg_log_likelihood));
}

}  // namespace oometer
