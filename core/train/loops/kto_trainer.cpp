#include "train/loops/kto_trainer.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "ops/nan_sums.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// What the next micro-batch is like with the answer before its own behind each prompt, cut to so many tokens
/// (_prepare_dataset, add_kl_completion_ids).
DataConfig mismatch(const DataConfig& batch, std::int64_t max_length) {
  DataConfig data = batch;
  data.rows.documents.clear();
  data.sequence_length = data.scored = 0;
  std::int64_t answer = batch.turns.back().answer;
  for (const DataConfig::Turns& turns : batch.turns) {
    const std::int64_t length = std::min(turns.prompt + std::exchange(answer, turns.answer), max_length);
    data.rows.documents.push_back({length});
    data.sequence_length = std::max(data.sequence_length, length);
    data.scored += std::max<std::int64_t>(0, length - std::max<std::int64_t>(turns.prompt, 1));
  }
  return data;
}

}  // namespace

KtoTrainer::KtoTrainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy,
                       const Objective& objective, const TrainingConfig& training, const DataConfig& data,
                       const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation)
    : HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation), reference_(reference) {
  model.loss_function = &lm_head_;  // add_fused_lm_head
  if (reference) reference->loss_function = &reference_head_;
}

DataConfig KtoTrainer::mismatched() const {
  return mismatch(*batch_, args_.max_length.value_or(std::numeric_limits<std::int64_t>::max()));
}

// DataCollatorForUnpairedPreference, DataCollatorForVisionUnpairedPreference
ModelInputs KtoTrainer::make_batch() {
  ModelInputs batch = model_.make_inputs(false);
  const auto input = [&](const Shape& sizes, DType dtype) {
    return empty(context_, Op::input, sizes, dtype, Role::input);
  };
  const std::int64_t samples = batch.input_ids.size(0);
  batch.completion_mask = input(batch.input_ids.sizes(), DType::int64);
  const Shape kl{samples, mismatched().sequence_length};
  for (int i = 0; i < 3; ++i) batch.others.push_back(calculates_kl() ? input(kl, DType::int64) : Tensor());
  batch.others.push_back(calculates_kl() && batch.mm_token_type_ids ? input(kl, DType::int64) : Tensor());
  Tensor ref, ref_kl;
  if (args_.precompute_ref_log_probs) {
    ref = input({samples}, DType::float32);
    if (calculates_kl()) ref_kl = input({samples}, DType::float32);
  }
  batch.others.push_back(input({samples}, DType::boolean));
  batch.others.push_back(ref);
  batch.others.push_back(ref_kl);
  return batch;
}

FusedCausalLMOutput KtoTrainer::call_fused(Model& model, const DataConfig& batch, const ModelInputs& inputs) {
  FusedLmHead& lm_head = &model == reference_ ? reference_head_ : lm_head_;
  model.set_data(batch);
  lm_head.scored = batch.scored;
  ModelOutputs outputs = call_model(model, inputs);
  if (model.refusal) model_.refusal = model.refusal;
  lm_head.output.aux_loss = std::move(outputs.aux_loss);
  return std::exchange(lm_head.output, {});
}

Tensor KtoTrainer::compute_kl_logps(Model& model, const ModelInputs& batch) {
  if (!calculates_kl()) return {};
  const DataConfig data = mismatched();
  ModelInputs inputs = batch;  // with the images of the prompts
  inputs.input_ids = batch.others[kKlInputIds];
  inputs.attention_mask = batch.others[kKlAttentionMask];
  inputs.mm_token_type_ids = batch.others[kKlTypes];
  inputs.rows = &data.rows;
  {
    const Tensor is_prompt = pointwise(Op::eq, {&batch.others[kKlCompletionMask]}, DType::boolean);
    inputs.labels = masked_fill(inputs.input_ids, is_prompt);
  }
  Tensor per_token_logps;
  {
    const NoGrad no_grad(context_);
    per_token_logps = call_fused(model, data, inputs).log_probs;
  }
  if (refused()) return {};
  return sum(per_token_logps, {1}, false);
}

Tensor KtoTrainer::compute_loss(ModelInputs batch, const Tensor&, ModelOutputs* returned) {
  const Tensor& labels = batch.others[kLabel];
  const Tensor num_chosen = sum_all(labels);
  const Tensor num_rejected = pointwise(Op::sub, {&num_chosen}, DType::int64);
  const Tensor kl_logps = compute_kl_logps(model_, batch);
  if (refused()) return {};
  ModelInputs model_kwargs = batch;
  {
    const Tensor is_prompt = pointwise(Op::eq, {&batch.completion_mask}, DType::boolean);
    model_kwargs.labels = masked_fill(batch.input_ids, is_prompt);
  }
  const FusedCausalLMOutput outputs = call_fused(model_, *batch_, model_kwargs);
  if (refused()) return {};
  const std::int64_t samples = labels.size(0), chosen = (samples + 1) / 2;
  const Tensor completion_logps = sum(outputs.log_probs, {1}, false);
  Parts indices;
  indices.chosen = view(nonzero(labels, chosen), {chosen});
  {
    const Tensor is_rejected = pointwise(Op::bitwise_not, {&labels}, DType::boolean);
    indices.rejected = view(nonzero(is_rejected, samples - chosen), {samples - chosen});
  }
  const auto parts_of = [&](const Tensor& x) {
    Parts parts;
    parts.chosen = index_select(x, 0, indices.chosen);
    parts.rejected = index_select(x, 0, indices.rejected);
    return parts;
  };
  const Parts logps = parts_of(completion_logps);
  Tensor ref_kl_logps, ref_completion_logps;
  FusedCausalLMOutput ref_outputs;
  Parts ref_logps_of;
  if (args_.precompute_ref_log_probs) {
    ref_logps_of = parts_of(batch.others[kRefLogps]);
    ref_kl_logps = batch.others[kRefKlLogps];
  } else {
    {
      const NoGrad no_grad(context_);
      const Scoped<bool> without_adapters(context_.adapters_disabled, reference_ == nullptr);
      Model& reference = reference_ ? *reference_ : model_;
      ref_kl_logps = compute_kl_logps(reference, batch);
      if (refused()) return {};
      ref_outputs = call_fused(reference, *batch_, model_kwargs);
    }
    if (refused()) return {};
    ref_completion_logps = sum(ref_outputs.log_probs, {1}, false);
    ref_logps_of = parts_of(ref_completion_logps);
  }
  Tensor kl;
  if (calculates_kl()) {
    {
      const Tensor difference = sub(kl_logps, ref_kl_logps);
      kl = mean_all(difference);
    }
    kl = gather(kl);
    kl = mean_all(kl);
    kl = pointwise(Op::clamp, {&kl}, DType::float32);
  } else {
    kl = empty(context_, Op::to_copy, {1}, DType::float32);
  }
  const auto rewards_of = [](const Tensor& logratios) { return mul_scalar(detach(logratios)); };
  Parts logratios, rewards;
  logratios.chosen = sub(logps.chosen, ref_logps_of.chosen);
  Tensor chosen_losses;
  const auto loss_of = [&](Tensor x, bool from_one) {
    x = mul_scalar(x);
    x = sigmoid(x);
    return from_one ? neg(x) : x;  // 1 - x
  };
  chosen_losses = loss_of(calculates_kl() ? sub(logratios.chosen, kl) : logratios.chosen, true);
  rewards.chosen = rewards_of(logratios.chosen);
  logratios.rejected = sub(logps.rejected, ref_logps_of.rejected);
  const Tensor rejected_losses =
      loss_of(calculates_kl() ? sub(kl, logratios.rejected) : logratios.rejected, calculates_kl());
  rewards.rejected = rewards_of(logratios.rejected);
  Tensor losses;
  {
    const Tensor desirable = mul_scalar(chosen_losses), undesirable = mul_scalar(rejected_losses);
    losses = cat({desirable, undesirable}, 0);
  }
  log_metrics(outputs, indices, logps, rewards, {num_chosen, num_rejected}, batch);
  Tensor loss = nanmean(losses);
  if (outputs.aux_loss) {
    const Tensor weighted = mul_scalar(outputs.aux_loss);
    loss = add(loss, weighted);
    const NoGrad no_grad(context_);
    const Tensor logged = mean_all(gather(outputs.aux_loss));
  }
  if (returned) {  // the logits are made for it, by one more forward
    const NoGrad no_grad(context_);
    model_kwargs.labels.reset();
    *returned = call_model(model_, model_kwargs);
  }
  return loss;
}

void KtoTrainer::log_metrics(const FusedCausalLMOutput& outputs, const Parts& indices, const Parts& logps,
                             const Parts& rewards, const Parts& counts, const ModelInputs& batch) const {
  const NoGrad no_grad(context_);
  const std::int64_t length = batch.completion_mask.size(1) - 1;
  const Tensor mask = slice(batch.completion_mask, 1, 1, length);
  const auto total = [&](const Tensor& of_process) { return sum_all(gather(of_process)); };
  {
    Tensor entropy_sum = mul(outputs.entropy, mask);
    entropy_sum = sum_all(entropy_sum);
    Tensor total_tokens = sum_all(mask);
    entropy_sum = total(entropy_sum);
    total_tokens = total(total_tokens);
    { const Tensor is_any = pointwise(Op::gt, {&total_tokens}, DType::boolean); }
    const Tensor entropy = pointwise(Op::div, {&entropy_sum, &total_tokens}, DType::float32);
  }
  if (context_.training) const Tensor tokens = total(sum_all(batch.attention_mask));
  const Tensor chosen_mean_logits = index_select(outputs.mean_logits, 0, indices.chosen);
  const Tensor rejected_mean_logits = index_select(outputs.mean_logits, 0, indices.rejected);
  const Tensor chosen_mask = index_select(mask, 0, indices.chosen);
  const Tensor rejected_mask = index_select(mask, 0, indices.rejected);
  const auto total_of = [&](const Tensor& logits, const Tensor& of, std::int64_t rows) {
    const Tensor is_scored = to(of, DType::boolean);
    const Tensor scored = index_mask(logits, is_scored, batch_->scored * rows / batch_->micro_batch_size);
    return sum_all(scored);
  };
  {
    const Tensor chosen = total_of(chosen_mean_logits, chosen_mask, indices.chosen.numel());
    const Tensor chosen_tokens = sum_all(chosen_mask);
    const Tensor rejected = total_of(rejected_mean_logits, rejected_mask, indices.rejected.numel());
    const Tensor rejected_tokens = sum_all(rejected_mask);
    for (const Tensor* x : {&chosen, &chosen_tokens, &rejected, &rejected_tokens}) const Tensor all = total(*x);
  }
  for (const Tensor* count : {&counts.chosen, &counts.rejected}) const Tensor all = total(*count);
  for (const Tensor* x : {&rewards.chosen, &logps.chosen, &rewards.rejected, &logps.rejected}) {
    const Tensor of_process = nansum(*x);
    const Tensor all = total(of_process);
  }
}

HfTrainer::Prediction KtoTrainer::prediction_step(const ModelInputs& inputs, bool prediction_loss_only) {
  return predict(inputs, inputs.input_ids, prediction_loss_only);
}

}  // namespace oometer
