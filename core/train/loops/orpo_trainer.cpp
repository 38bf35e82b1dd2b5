#include "train/loops/orpo_trainer.h"

#include <algorithm>

#include "ops/logprob_entropy.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "ops/xielu.h"
#include "train/objectives/causal_lm.h"

namespace oometer {

namespace {

/// log(1 - exp(x))
Tensor log1mexp(const Tensor& x) {
  const auto log = [](const Tensor& of) { return activation_of_input(Op::log, Op::div, of, false); };
  const Tensor is_small = pointwise(Op::lt, {&x}, DType::boolean);
  Tensor small = exp(x);
  small = neg(small);
  small = log(small);  // log1p
  Tensor large = expm1(x);
  large = neg(large);
  large = log(large);
  return where(is_small, small, large);
}

/// get_batch_logps, average_log_prob=True
Tensor get_batch_logps(const Tensor& all_logits, const Tensor& all_labels) {
  const std::int64_t length = all_labels.size(1) - 1;
  Tensor labels = slice(all_labels, 1, 1, length);
  labels = clone(labels);
  const Tensor logits = slice(all_logits, 1, 0, length);
  const Tensor loss_mask = pointwise(Op::ne, {&labels}, DType::boolean);
  {
    const Tensor is_ignored = pointwise(Op::eq, {&labels}, DType::boolean);
    labels = pointwise(Op::where, {&is_ignored, &labels}, DType::int64);
  }
  const Tensor per_token_logps = selective_log_softmax(logits, labels);
  Tensor total = mul(per_token_logps, loss_mask);
  total = sum(total, {1}, false);
  const Tensor tokens = sum(loss_mask, {1}, false);
  return div(total, tokens);
}

}  // namespace

// DPODataCollatorWithPadding (experimental/utils.py)
ModelInputs OrpoTrainer::make_batch() {
  const std::int64_t pairs = batch_->micro_batch_size / 2;
  std::int64_t prompt = 0;
  for (const DataConfig::Turns& turns : batch_->turns) prompt = std::max(prompt, turns.prompt);
  const auto input = [&](std::int64_t length) {
    return empty(context_, Op::input, {pairs, length}, DType::int64, Role::input);
  };
  ModelInputs batch;
  for (int i = 0; i < kPromptInputIds; ++i) batch.others.push_back(input(batch_->sequence_length));
  for (int i = 0; i < 2; ++i) batch.others.push_back(input(prompt));
  return batch;
}

OrpoTrainer::Forward OrpoTrainer::concatenated_forward(const ModelInputs& batch) {
  const TensorList& others = batch.others;
  ModelInputs concatenated;
  concatenated.input_ids = cat({others[kChosenInputIds], others[kRejectedInputIds]}, 0);
  concatenated.attention_mask = cat({others[kChosenAttentionMask], others[kRejectedAttentionMask]}, 0);
  concatenated.rows = &batch_->rows;
  const Tensor concatenated_labels = cat({others[kChosenLabels], others[kRejectedLabels]}, 0);
  const std::int64_t len_chosen = others[kChosenLabels].size(0), length = concatenated_labels.size(1) - 1;
  const ModelOutputs outputs = call_model(model_, concatenated);
  Forward result;
  if (refused()) return result;
  const Tensor& all_logits = outputs.others.front();
  Tensor labels = clone(concatenated.input_ids);
  {
    const Tensor is_token = pointwise(Op::eq, {&concatenated.attention_mask}, DType::boolean);
    labels = pointwise(Op::where, {&is_token, &labels}, DType::int64);
  }
  result.nll_loss = shifted_loss(slice(all_logits, 0, 0, len_chosen), slice(labels, 0, 0, len_chosen));
  const Tensor all_logps = get_batch_logps(all_logits, concatenated_labels);
  result.chosen_logps = slice(all_logps, 0, 0, len_chosen);
  result.rejected_logps = slice(all_logps, 0, len_chosen, len_chosen);
  result.chosen_logits = slice(slice(all_logits, 0, 0, len_chosen), 1, 0, length);
  result.rejected_logits = slice(slice(all_logits, 0, len_chosen, len_chosen), 1, 0, length);
  return result;
}

Tensor OrpoTrainer::compute_loss(ModelInputs batch, const Tensor&, ModelOutputs*) {
  const Forward policy = concatenated_forward(batch);
  if (refused()) return {};
  Tensor losses, chosen_rewards, rejected_rewards, log_odds_ratio, log_odds_chosen;
  {  // odds_ratio_loss
    Tensor log_odds, ratio;
    {
      const Tensor difference = sub(policy.chosen_logps, policy.rejected_logps);
      Tensor complements;
      {
        const Tensor chosen = log1mexp(policy.chosen_logps), rejected = log1mexp(policy.rejected_logps);
        complements = sub(chosen, rejected);
      }
      log_odds = sub(difference, complements);
    }
    ratio = activation_of_input(Op::log_sigmoid, Op::log_sigmoid_backward, log_odds, false);
    losses = mul_scalar(ratio);
    chosen_rewards = mul_scalar(detach(policy.chosen_logps));
    rejected_rewards = mul_scalar(detach(policy.rejected_logps));
    log_odds_ratio = mean_all(ratio);
    log_odds_chosen = mean_all(log_odds);
  }
  Tensor loss;
  {
    const Tensor mean = mean_all(losses);
    loss = sub(policy.nll_loss, mean);
  }
  const NoGrad no_grad(context_);  // what follows is detached
  Tensor reward_accuracies;
  {
    const Tensor is_better = pointwise(Op::gt, {&chosen_rewards, &rejected_rewards}, DType::boolean);
    reward_accuracies = to(is_better, DType::float32);
  }
  TensorList metrics;
  const auto add_metric = [&](const Tensor& of_process) { metrics.push_back(mean_all(gather(of_process))); };
  for (const Tensor* x : {&chosen_rewards, &rejected_rewards, &reward_accuracies}) add_metric(*x);
  add_metric(sub(chosen_rewards, rejected_rewards));
  for (const Tensor* x : {&policy.rejected_logps, &policy.chosen_logps}) add_metric(*x);
  for (const Tensor* x : {&policy.rejected_logits, &policy.chosen_logits}) add_metric(mean_all(detach(*x)));
  add_metric(policy.nll_loss);
  for (const Tensor* x : {&log_odds_ratio, &log_odds_chosen}) add_metric(*x);
  return loss;
}

HfTrainer::Prediction OrpoTrainer::prediction_step(const ModelInputs& inputs, bool prediction_loss_only) {
  Prediction prediction;
  const NoGrad no_grad(context_);
  prediction.loss = compute_loss(inputs, {}, nullptr);
  if (refused() || prediction_loss_only) return prediction;
  prediction.logits.push_back(empty(context_, Op::to_copy, {2}, DType::float32));
  prediction.labels = empty(context_, Op::zeros, {2}, DType::float32);
  return prediction;
}

}  // namespace oometer
