#include "train/loops/custom_dpo_trainer.h"

#include <cstdint>
#include <utility>

#include "ops/losses.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "train/loops/batch_logps.h"

namespace oometer {

ModelInputs nested_clone(ModelInputs batch) {
  for (Tensor* tensor : batch.all())
    if (*tensor) *tensor = clone(detach(*tensor));
  return batch;
}

CustomDpoTrainer::CustomDpoTrainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy,
                                   const Objective& objective, const TrainingConfig& training, const DataConfig& data,
                                   const std::vector<DataConfig>& micro_batches,
                                   const std::vector<DataConfig>& evaluation)
    : HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation), reference_(reference) {
  model.accepts_loss_kwargs = false;
}

CustomDpoTrainer::Forward CustomDpoTrainer::concatenated_forward(Model& model, ModelInputs batch, bool is_ref_model) {
  if (args_.has_reference()) batch = nested_clone(std::move(batch));
  const Tensor labels = std::exchange(batch.labels, {});
  Tensor all_logits;
  {
    const ModelOutputs outputs = call_model(model, batch);
    if (model.refusal) model_.refusal = model.refusal;
    if (refused()) return {};
    all_logits = to(outputs.others.front(), DType::float32);
  }
  BatchLogps all = batch_logps(all_logits, labels, args_.ld_alpha && !is_ref_model);
  if (averages()) all.logps = div(all.logps, all.valid_length);
  Forward result{halves(all.logps), halves(all_logits), {}};
  const Tensor chosen_length = halves(all.valid_length).chosen;
  result.chosen_logps_avg = averages() ? result.logps.chosen : div(result.logps.chosen, chosen_length);
  return result;
}

Pair CustomDpoTrainer::compute_reference_log_probs(const ModelInputs& batch) {
  if (!args_.has_reference()) return {};
  const NoGrad no_grad(context_);
  const Scoped<bool> without_adapters(context_.adapters_disabled, reference_ == nullptr);
  if (reference_) reference_->set_data(*batch_);
  return concatenated_forward(reference_ ? *reference_ : model_, batch, true).logps;
}

/// trl's, of 0.24 (trainer/dpo_trainer.py), where the loss is the argument loss_type, which LLaMA-Factory does not
/// give: "sigmoid".
CustomDpoTrainer::Losses CustomDpoTrainer::dpo_loss(const Pair& policy, const Pair& reference) {
  const auto logratios_of = [](const Tensor& logps, const Tensor& ref_logps) {
    const Tensor ref = mul_scalar(ref_logps);  // (not self.reference_free) * ref_logps
    return sub(logps, ref);
  };
  const Tensor chosen_logratios = logratios_of(policy.chosen, reference.chosen);
  const Tensor rejected_logratios = logratios_of(policy.rejected, reference.rejected);
  const Tensor logratios = sub(policy.chosen, policy.rejected);
  const Tensor ref_logratios = sub(reference.chosen, reference.rejected);
  const Tensor logits = sub(logratios, ref_logratios);
  Losses result;
  {
    Tensor kept = log_sigmoid(mul_scalar(logits));
    kept = neg(kept);
    kept = mul_scalar(kept);
    Tensor flipped = log_sigmoid(mul_scalar(logits));
    flipped = mul_scalar(flipped);
    result.losses = sub(kept, flipped);
  }
  const auto rewards_of = [](const Tensor& logps, const Tensor& ref_logps) {
    return mul_scalar(detach(sub(logps, ref_logps)));
  };
  result.chosen_rewards = rewards_of(policy.chosen, reference.chosen);
  result.rejected_rewards = rewards_of(policy.rejected, reference.rejected);
  return result;
}

CustomDpoTrainer::Losses CustomDpoTrainer::compute_preference_loss(const Pair& policy, const Pair& reference) const {
  if (args_.has_reference()) return dpo_loss(policy, reference);
  Losses result;
  if (args_.loss_type == "orpo") {  // odds_ratio_loss
    const auto log_of_rest = [](const Tensor& logps) {
      Tensor x = exp(logps);
      x = neg(x);
      return activation_of_input(Op::log, Op::div, x, false);  // log1p
    };
    Tensor log_odds;
    {
      const Tensor difference = sub(policy.chosen, policy.rejected);
      Tensor of_rest;
      {
        const Tensor chosen = log_of_rest(policy.chosen), rejected = log_of_rest(policy.rejected);
        of_rest = sub(chosen, rejected);
      }
      log_odds = sub(difference, of_rest);
    }
    const Tensor sft_loss = neg(policy.chosen);
    const Tensor odds_ratio_loss = neg(log_sigmoid(log_odds));
    const Tensor weighted = mul_scalar(odds_ratio_loss);
    result.losses = add(sft_loss, weighted);
  } else {  // simpo_loss
    const Tensor pi_logratios = sub(policy.chosen, policy.rejected);
    const Tensor logits = add_scalar(pi_logratios);
    result.losses = neg(log_sigmoid(mul_scalar(logits)));
  }
  result.chosen_rewards = mul_scalar(detach(policy.chosen));
  result.rejected_rewards = mul_scalar(detach(policy.rejected));
  return result;
}

// get_batch_loss_metrics
Tensor CustomDpoTrainer::compute_loss(ModelInputs inputs, const Tensor&, ModelOutputs*) {
  const Forward policy = concatenated_forward(model_, inputs, false);
  if (refused()) return {};
  const Pair reference_logps = compute_reference_log_probs(inputs);
  if (refused()) return {};
  Losses result = compute_preference_loss(policy.logps, reference_logps);
  const Tensor sft_loss = neg(policy.chosen_logps_avg);
  if (args_.pref_ftx > 1e-6) {
    const Tensor weighted = mul_scalar(sft_loss);
    result.losses = add_in_place(result.losses, weighted);
  }
  log_mean(result.chosen_rewards);
  log_mean(result.rejected_rewards);
  {
    const Tensor is_better = pointwise(Op::gt, {&result.chosen_rewards, &result.rejected_rewards}, DType::boolean);
    log_mean(to(is_better, DType::float32));
  }
  log_mean(sub(result.chosen_rewards, result.rejected_rewards));
  for (const Pair* each : {&policy.logps, &policy.logits}) {
    log_mean(each->chosen);
    log_mean(each->rejected);
  }
  if (args_.loss_type == "orpo") {
    log_mean(sft_loss);
    log_mean(div_scalar(sub(result.losses, sft_loss)));
  }
  return mean_all(result.losses);
}

}  // namespace oometer
