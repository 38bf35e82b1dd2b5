#include "train/objectives/masked_cross_entropy.h"

#include <functional>

#include "ops/ops.h"
#include "tensor/node.h"
#include "tensor/tensor_list.h"

namespace oometer {

namespace {

/// local_loss * dp_size: `local_loss` is a name until backward is over, when the graph goes.
Tensor times_ranks(const Tensor& local_loss) {
  Record record(Op::mul, nullptr, {&local_loss});
  Tensor result = empty_like(Op::mul, local_loss);
  if (record)
    record->custom = std::make_unique<std::function<void(Backward&)>>(
        [local_loss](Backward& b) { b.give(0, empty_like(Op::mul, b.grad())); });
  return record.output(std::move(result));
}

class MaskedCrossEntropy : public LossFunction {
 public:
  Tensor operator()(const Tensor& logits_in, const Tensor& labels, const Tensor&) const override {
    const std::int64_t tokens = labels.numel();
    Tensor local_loss;
    {
      const Tensor logits = to(view(logits_in, {tokens, logits_in.size(-1)}), DType::float32);
      local_loss = cross_entropy(logits, view(labels, {tokens}));
      local_loss = div_scalar(local_loss);
    }
    const int iteration = logits_in.context().log.phases.back().iteration;
    if (iteration != iteration_) loss_buffer_.clear();
    iteration_ = iteration;
    {
      const NoGrad no_grad(logits_in.context());
      loss_buffer_.push_back(clone(local_loss));
    }
    return times_ranks(local_loss);
  }

 private:
  mutable TensorList loss_buffer_;  ///< until the step is over
  mutable int iteration_ = 0;
};

}  // namespace

std::unique_ptr<LossFunction> make_masked_cross_entropy() { return std::make_unique<MaskedCrossEntropy>(); }

}  // namespace oometer
