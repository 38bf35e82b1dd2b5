#include "train/objectives/preference.h"

#include <utility>

#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// Of each sequence: logits[:, :-1].float().log_softmax(-1) at labels[:, 1:], summed over the tokens.
Tensor log_probabilities(const Tensor& logits, const Tensor& labels) {
  const std::int64_t tokens = logits.size(1) - 1;
  Tensor as_float = to(slice(logits, 1, 0, tokens), DType::float32);
  const Tensor logps = log_softmax(as_float);
  as_float.reset();
  const Tensor of_labels = gather(logps, unsqueeze(slice(labels, 1, 1, tokens), 2));
  return sum(reshape(of_labels, {logits.size(0), tokens}), {1}, false);
}

/// chosen - rejected
Tensor margin_of(const Tensor& logps) {
  const std::int64_t half = logps.size(0) / 2;
  const TensorList halves = split(logps, {half, half}, 0);
  return sub(halves[0], halves[1]);
}

}  // namespace

Tensor PreferenceLoss::loss(const CallModel& policy, ModelInputs& batch) const {
  ModelInputs inputs;
  inputs.input_ids = batch.input_ids;
  const ModelOutputs& outputs = policy(inputs);
  if (outputs.others.empty()) return {};
  const Tensor logps = log_probabilities(outputs.others.front(), batch.labels);
  Tensor reference_logps;
  {
    Context& context = logps.context();
    const NoGrad no_grad(context);
    const Scoped<bool> eval(context.training, false);
    const ModelOutputs reference_outputs = reference_.forward(inputs);
    if (reference_outputs.others.empty()) return {};
    reference_logps = log_probabilities(reference_outputs.others.front(), batch.labels);
  }
  const Tensor policy_margin = margin_of(logps), reference_margin = margin_of(reference_logps);
  const Tensor margin = sub(policy_margin, reference_margin);
  return mean_all(pow(add_scalar(margin), 2));  // (margin - 1 / (2 * beta)) ** 2
}

}  // namespace oometer
