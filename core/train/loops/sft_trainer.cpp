#include "train/loops/sft_trainer.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "train/objectives/label_smoother.h"

namespace oometer {

SftTrainer::SftTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                       const TrainingConfig& training, const DataConfig& data,
                       const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation)
    : HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation) {
  model.loss_function = &lm_head_;  // add_fused_lm_head
}

// A FusedCausalLMOutput has more than the model's loss.
void SftTrainer::return_outputs(ModelOutputs& outputs) {
  FusedCausalLMOutput& fused = lm_head_.output;
  if (!fused.loss || !strategy_.wraps_evaluation()) return HfTrainer::return_outputs(outputs);
  fused.loss.reset();  // the model's, which it has already
  std::vector<Tensor*> members;
  for (Tensor* member : {&fused.log_probs, &fused.entropy, &fused.mean_logits, &fused.is_top1})
    if (*member) members.push_back(member);
  const std::size_t before = outputs.others.size();
  for (Tensor* member : members) outputs.others.push_back(std::move(*member));
  HfTrainer::return_outputs(outputs);
  for (std::size_t i = 0; i < members.size(); ++i) *members[i] = outputs.others[before + i];
}

FusedCausalLMOutput SftTrainer::call_fused(const ModelInputs& inputs) {
  lm_head_.scored = batch_->scored;
  const ModelOutputs outputs = call_model(model_, inputs);
  return std::exchange(lm_head_.output, {});
}

ModelOutputs SftTrainer::call_for_logits(ModelInputs inputs) {
  inputs.labels.reset();
  return call_model(model_, inputs);
}

Tensor SftTrainer::compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) {
  Tensor loss, per_token_loss;
  FusedCausalLMOutput outputs;
  const bool is_dft = args_.loss_type == "dft";
  if (args_.label_smoothing_factor != 0 && !is_dft) {
    {
      const ModelOutputs with_logits = call_for_logits(inputs);
      if (refused()) return {};
      loss = smoothed_loss(with_logits.others.front(), inputs.labels, true, num_items_in_batch);
    }
    const NoGrad no_grad(context_);  // the fused head feeds the metrics only
    outputs = call_fused(inputs);
  } else {
    outputs = call_fused(inputs);
    if (refused()) return {};
    per_token_loss = neg(outputs.log_probs);
    if (is_dft) {
      const Tensor probabilities = detach(exp(outputs.log_probs));
      per_token_loss = mul(per_token_loss, probabilities);
    }
    const Tensor num_tokens = num_items_in_batch ? num_items_in_batch : sum_all(outputs.label_mask);
    const Tensor total = sum_all(per_token_loss);
    const Tensor at_least_one = pointwise(Op::clamp, {&num_tokens}, num_tokens.dtype());
    loss = div(total, at_least_one);
  }
  if (args_.average_tokens_across_devices && num_items_in_batch) loss = mul_scalar(loss);
  log_metrics(outputs, inputs);
  if (returned) {  // the logits are made for it, by one more forward
    const NoGrad no_grad(context_);
    *returned = call_for_logits(inputs);
  }
  return loss;
}

void SftTrainer::log_metrics(const FusedCausalLMOutput& outputs, const ModelInputs& inputs) const {
  const NoGrad no_grad(context_);
  const auto gathered = [this](const Tensor& x) { return sum_all(gather(sum_all(x))); };  // gather_for_metrics
  const Tensor num_valid = gathered(outputs.label_mask), entropy_sum = gathered(outputs.entropy),
               num_correct = gathered(outputs.is_top1);
  for (const Tensor* total : {&entropy_sum, &num_correct}) {
    { const Tensor is_any = pointwise(Op::gt, {&num_valid}, DType::boolean); }
    const Tensor mean = pointwise(Op::div, {total, &num_valid}, DType::float32);
  }
  if (!context_.training) return;
  const Tensor tokens = inputs.attention_mask ? gathered(inputs.attention_mask)
                                              : sum_all(gather(empty(context_, Op::to_copy, {}, DType::int64)));
}

HfTrainer::Prediction SftTrainer::prediction_step(const ModelInputs& inputs, bool prediction_loss_only) {
  Prediction prediction;
  const NoGrad no_grad(context_);
  if (prediction_loss_only) {
    prediction.loss = compute_loss(inputs, {}, nullptr);
    return prediction;
  }
  ModelOutputs outputs;
  prediction.loss = compute_loss(inputs, {}, &outputs);
  if (refused()) return prediction;
  prediction.logits.push_back(outputs.others.front());
  prediction.labels = inputs.labels;
  return prediction;
}

}  // namespace oometer
