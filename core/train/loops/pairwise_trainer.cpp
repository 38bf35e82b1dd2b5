#include "train/loops/pairwise_trainer.h"

#include <cstdint>

#include "ops/experts.h"
#include "ops/losses.h"
#include "ops/ops.h"

namespace oometer {

PairwiseTrainer::PairwiseTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                                 const TrainingConfig& training, const DataConfig& data,
                                 const std::vector<DataConfig>& micro_batches,
                                 const std::vector<DataConfig>& evaluation)
    : HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation) {
  model.accepts_loss_kwargs = false;
}

// The batch has labels, too, and the model's own loss is made: `_, _, values = model(...)` holds it.
Tensor PairwiseTrainer::compute_loss(ModelInputs inputs, const Tensor&, ModelOutputs*) {
  Tensor own_loss, values;
  {
    ModelOutputs outputs = call_model(model_, inputs);
    if (refused()) return {};
    own_loss = outputs.loss;
    values = outputs.others[1];
  }
  const std::int64_t batch_size = inputs.input_ids.size(0) / 2;
  const TensorList masks = split(inputs.attention_mask, {batch_size, batch_size}, 0);
  const TensorList rewards = split(values, {batch_size, batch_size}, 0);
  const auto last_of = [](const Tensor& reward, const Tensor& mask) {
    Tensor index = sum(mask, {1}, true);
    index = pointwise(Op::sub, {&index}, DType::int64);
    return oometer::gather(reward, index);
  };
  Tensor chosen_scores = last_of(rewards[0], masks[0]), rejected_scores = last_of(rewards[1], masks[1]);
  const Shape squeezed = batch_size == 1 ? Shape{} : Shape{batch_size};
  for (Tensor* scores : {&chosen_scores, &rejected_scores}) *scores = view(*scores, squeezed);
  Tensor loss = sub(chosen_scores, rejected_scores);
  loss = log_sigmoid(loss);
  loss = mean_all(loss);
  return neg(loss);
}

}  // namespace oometer
