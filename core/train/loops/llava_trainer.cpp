#include "train/loops/llava_trainer.h"

#include <cstddef>
#include <utility>

#include "ops/ops.h"

namespace oometer {

// DataLoaderShard.__iter__: a batch goes to the device when the loop asks for it, which has the last one until then.
void LlavaTrainer::run_step(int step) {
  strategy_.grad_norm.is_held = false;
  strategy_.scale_wrt_gas = true;
  const auto micro_steps = static_cast<std::size_t>(training_.gradient_accumulation_steps);
  for (std::size_t i = 0; i < micro_steps; ++i) {
    context_.begin_phase(i == 0 ? PhaseName::batch : PhaseName::forward, step);
    set_data(micro_batch(step, i));
    ModelInputs batch = make_batch();
    inputs_ = std::move(batch);
    is_last_ = i + 1 == micro_steps;
    context_.begin_phase(PhaseName::forward, step);
    training_step(step);
    if (refused()) return;
  }
  if (strategy_.divides_loss()) strategy_.step();
}

void LlavaTrainer::training_step(int step) {
  Tensor loss;
  {
    // _prepare_input: numbers of the engine's type, in tensors that are this function's.
    ModelInputs inputs = inputs_;
    if (!strategy_.divides_loss() && inputs.pixel_values)
      inputs.pixel_values = to(inputs.pixel_values, weight_dtype(training_.precision));
    loss = compute_loss(inputs, {}, nullptr);
    if (refused()) return;
    if (!loss.requires_grad()) {
      model_.refusal = nothing_to_train();
      return;
    }
    context_.begin_phase(PhaseName::backward, step);
    if (strategy_.divides_loss()) {
      const Tensor scaled = div_scalar(loss);  // Accelerator.backward
      strategy_.backward(scaled, is_last_);
    } else {
      strategy_.backward(loss, is_last_);
    }
    context_.begin_phase(PhaseName::optimizer, step);
    if (!strategy_.divides_loss() && is_last_) strategy_.step();  // DeepSpeedEngineWrapper.backward
    Tensor detached = detach(loss);
    detached = div_scalar(detached);
    tr_loss_step_ = std::move(detached);
  }
  loss.reset();
  const NoGrad no_grad(context_);
  { const Tensor is_nan = pointwise(Op::ne, {&tr_loss_step_}, DType::boolean); }
  const Tensor magnitude = pointwise(Op::abs, {&tr_loss_step_}, tr_loss_step_.dtype());
  const Tensor is_inf = pointwise(Op::eq, {&magnitude}, DType::boolean);
}

}  // namespace oometer
