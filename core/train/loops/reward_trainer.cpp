#include "train/loops/reward_trainer.h"

#include <cstdint>
#include <utility>

#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

RewardTrainer::RewardTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                             const TrainingConfig& training, const DataConfig& data,
                             const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation)
    : HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation) {
  model.has_pad_token = true;  // the tokenizer's
}

Tensor RewardTrainer::compute_loss(ModelInputs inputs, const Tensor&, ModelOutputs* returned) {
  ModelOutputs outputs = call_model(model_, inputs);
  if (refused()) return {};
  const Tensor& logits = outputs.others.front();
  Tensor rewards_chosen, rewards_rejected;
  {
    const std::int64_t pairs = logits.size(0) / 2;
    TensorList chunks = split(view(logits, {2 * pairs}), {pairs, pairs}, 0);
    rewards_chosen = chunks[0];
    rewards_rejected = chunks[1];
  }
  Tensor loss;
  {
    Tensor x = sub(rewards_chosen, rewards_rejected);
    x = activation_of_input(Op::log_sigmoid, Op::log_sigmoid_backward, x, false);
    x = mean_all(x);
    loss = neg(x);
  }
  if (args_.center_rewards_coefficient) {
    Tensor x = add(rewards_chosen, rewards_rejected);
    x = pow(x, 2);
    x = mean_all(x);
    x = mul_scalar(x);
    loss = add_bias_(std::move(loss), x);
  }
  if (context_.training) {
    const Tensor of_process = gather(sum_all(inputs.attention_mask));
    const Tensor num_tokens_in_batch = sum_all(of_process);
  }
  {
    const NoGrad no_grad(context_);
    const Tensor all_rewards = gather(logits);
    for (const Op op : {Op::minimum, Op::mean, Op::maximum})
      const Tensor reward = reduce(op, all_rewards, {}, false, all_rewards.dtype());
    {
      const Tensor is_better = pointwise(Op::gt, {&rewards_chosen, &rewards_rejected}, DType::boolean);
      const Tensor as_float = to(is_better, DType::float32);
      const Tensor mean_accuracy = gather(mean_all(as_float));
      const Tensor mean = mean_all(mean_accuracy);
    }
    const Tensor margins = sub(rewards_chosen, rewards_rejected);
    const Tensor mean_margin = gather(mean_all(margins));
    const Tensor mean = mean_all(mean_margin);
  }
  if (returned) *returned = std::move(outputs);
  return loss;
}

}  // namespace oometer
