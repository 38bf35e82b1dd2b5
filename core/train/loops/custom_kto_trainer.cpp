#include "train/loops/custom_kto_trainer.h"

#include <algorithm>

#include "ops/nan_sums.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "rounding.h"
#include "train/loops/batch_logps.h"
#include "train/loops/custom_dpo_trainer.h"

namespace oometer {

namespace {

/// A micro-batch with the answers of its samples from the last to the first (data/processor/feedback.py turns those of
/// a whole data set round).
DataConfig mismatched(const DataConfig& batch) {
  constexpr std::int64_t kPadToMultipleOf = 8;  // train/kto/workflow.py
  DataConfig data = batch;
  data.rows.documents.clear();
  data.sequence_length = data.scored = 0;
  for (std::size_t i = 0; i < batch.turns.size(); ++i) {
    const std::int64_t answer = batch.turns[batch.turns.size() - 1 - i].answer;
    const std::int64_t length = batch.turns[i].prompt + answer;
    data.rows.documents.push_back({length});
    data.sequence_length = std::max(data.sequence_length, length);
    data.scored += answer;
  }
  data.sequence_length = round_up(data.sequence_length, kPadToMultipleOf);
  return data;
}

}  // namespace

CustomKtoTrainer::CustomKtoTrainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy,
                                   const Objective& objective, const TrainingConfig& training, const DataConfig& data,
                                   const std::vector<DataConfig>& micro_batches,
                                   const std::vector<DataConfig>& evaluation)
    : HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation), reference_(reference) {
  model.accepts_loss_kwargs = false;
}

// KTODataCollatorWithPadding (data/collator.py)
ModelInputs CustomKtoTrainer::make_batch() {
  ModelInputs batch = model_.make_inputs(true);
  const std::int64_t samples = batch.input_ids.size(0), length = mismatched(*batch_).sequence_length;
  for (int i = 0; i < kKtoTags; ++i)
    batch.others.push_back(empty(context_, Op::input, {samples, length}, DType::int64, Role::input));
  batch.others.push_back(empty(context_, Op::input, {samples}, DType::boolean, Role::input));
  return batch;
}

CustomKtoTrainer::Forward CustomKtoTrainer::forward(Model& model, const ModelInputs& given, bool is_kl) {
  const ModelInputs batch = nested_clone(given);
  const DataConfig kl_data = mismatched(*batch_);
  ModelInputs model_inputs;
  model_inputs.input_ids = is_kl ? batch.others[kKlInputIds] : batch.input_ids;
  model_inputs.attention_mask = is_kl ? batch.others[kKlAttentionMask] : batch.attention_mask;
  model_inputs.rows = is_kl ? &kl_data.rows : &batch_->rows;
  model.set_data(is_kl ? kl_data : *batch_);
  Forward result;
  {
    const ModelOutputs outputs = call_model(model, model_inputs);
    if (model.refusal) model_.refusal = model.refusal;
    if (refused()) return {};
    result.logits = to(outputs.others.front(), DType::float32);
  }
  const BatchLogps all = batch_logps(result.logits, is_kl ? batch.others[kKlLabels] : batch.labels);
  result.logps = all.logps;
  result.logps_avg = div(all.logps, all.valid_length);
  return result;
}

CustomKtoTrainer::Concatenated CustomKtoTrainer::concatenated_forward(Model& model, const ModelInputs& batch) {
  const Forward target = forward(model, batch, false);
  if (refused()) return {};
  Concatenated result;
  Tensor kl_logps_avg;  // `_`
  {
    const NoGrad no_grad(context_);
    const Forward kl = forward(model, batch, true);
    if (refused()) return {};
    result.kl_logps = kl.logps;
    kl_logps_avg = kl.logps_avg;
  }
  const Tensor& kto_tags = batch.others[kKtoTags];
  const std::int64_t samples = kto_tags.size(0), chosen = (samples + 1) / 2;
  const auto rejected_of = [&](const Tensor& x) {
    const Tensor is_rejected = pointwise(Op::bitwise_not, {&kto_tags}, DType::boolean);
    return index_mask(x, is_rejected, samples - chosen);
  };
  result.logits.chosen = index_mask(target.logits, kto_tags, chosen);
  result.logps.chosen = index_mask(target.logps, kto_tags, chosen);
  result.logits.rejected = rejected_of(target.logits);
  result.logps.rejected = rejected_of(target.logps);
  result.chosen_logps_avg = index_mask(target.logps_avg, kto_tags, chosen);
  return result;
}

/// trl's, of 0.24 (trainer/kto_trainer.py).
CustomKtoTrainer::Losses CustomKtoTrainer::kto_loss(const Concatenated& policy, const Parts& reference_logps,
                                                    const Tensor& reference_kl_logps) const {
  Losses result;
  {
    const Tensor difference = sub(policy.kl_logps, reference_kl_logps);
    result.kl = mean_all(difference);
  }
  result.kl = gather(result.kl);
  result.kl = mean_all(result.kl);
  result.kl = pointwise(Op::clamp, {&result.kl}, DType::float32);
  const auto loss_of = [](Tensor x) {
    x = mul_scalar(x);
    x = sigmoid(x);
    return neg(x);  // 1 - x
  };
  const Tensor chosen_logratios = sub(policy.logps.chosen, reference_logps.chosen);
  const Tensor chosen_losses = loss_of(sub(chosen_logratios, result.kl));
  result.rewards.chosen = mul_scalar(detach(chosen_logratios));
  Tensor rejected_logratios, rejected_losses;
  if (policy.logps.rejected.numel() != 0) {
    rejected_logratios = sub(policy.logps.rejected, reference_logps.rejected);
    rejected_losses = loss_of(sub(result.kl, rejected_logratios));
    result.rewards.rejected = mul_scalar(detach(rejected_logratios));
  } else {  // torch.Tensor([])
    rejected_losses = empty(context_, Op::to_copy, {0}, DType::float32);
    result.rewards.rejected = empty(context_, Op::to_copy, {0}, DType::float32);
  }
  const Tensor desirable = mul_scalar(chosen_losses), undesirable = mul_scalar(rejected_losses);
  result.losses = cat({desirable, undesirable}, 0);
  return result;
}

// get_batch_loss_metrics
Tensor CustomKtoTrainer::compute_loss(ModelInputs inputs, const Tensor&, ModelOutputs*) {
  const Concatenated policy = concatenated_forward(model_, inputs);
  if (refused()) return {};
  Parts reference_logps;
  Tensor reference_kl_logps, reference_logps_avg;
  {
    const NoGrad no_grad(context_);
    const Scoped<bool> without_adapters(context_.adapters_disabled, reference_ == nullptr);
    const Concatenated reference = concatenated_forward(reference_ ? *reference_ : model_, inputs);
    if (refused()) return {};
    reference_logps = reference.logps;
    reference_kl_logps = reference.kl_logps;
  }
  const Losses result = kto_loss(policy, reference_logps, reference_kl_logps);
  Tensor losses = nanmean(result.losses);
  if (args_.pref_ftx > 1e-6) {
    const Tensor sft_loss = neg(policy.chosen_logps_avg);
    Tensor weighted = nanmean(sft_loss);
    weighted = mul_scalar(weighted);
    weighted = div_scalar(weighted);
    weighted = mul_scalar(weighted);
    losses = add_in_place(losses, weighted);
  }
  for (const Tensor* x : {&result.rewards.chosen, &policy.logps.chosen, &policy.logits.chosen, &result.rewards.rejected,
                          &policy.logps.rejected, &policy.logits.rejected})
    if (x->numel() != 0) const Tensor total = nansum(*x);
  return losses;
}

}  // namespace oometer
