#include "train/loops/dpo_trainer.h"

#include <string_view>
#include <utility>

#include "ops/losses.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

namespace {

/// loss_type="exo_pair", of numbers for the labels' smoothing.
Tensor exo_pair(const Tensor& delta) {
  Context& context = delta.context();
  const auto number = [&](Op op) { return empty(context, op, {}, DType::float32); };
  const Tensor epsilon = number(Op::to_copy);
  const auto term = [&](const Tensor& log_p) {
    const Tensor q = sigmoid(mul_scalar(delta)), log_q = log_sigmoid(mul_scalar(delta));
    const Tensor difference = sub(log_q, log_p);
    return mul(q, difference);
  };
  const Tensor log_pw = number(Op::log), log_pl = number(Op::log);
  const Tensor chosen = term(log_pw), rejected = term(log_pl);
  return add(chosen, rejected);
}

}  // namespace

DpoTrainer::DpoTrainer(Context& context, Model& model, Model* reference, TrainingStrategy& strategy,
                       const Objective& objective, const TrainingConfig& training, const DataConfig& data,
                       const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation)
    : HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation), reference_(reference) {
  model.loss_function = &lm_head_;  // add_fused_lm_head
  if (reference) reference->loss_function = &reference_head_;
}

// DataCollatorForPreference
ModelInputs DpoTrainer::make_batch() {
  ModelInputs batch = model_.make_inputs(false);
  const auto input = [&](const Shape& sizes, DType dtype) {
    return empty(context_, Op::input, sizes, dtype, Role::input);
  };
  batch.completion_mask = input(batch.input_ids.sizes(), DType::int64);
  if (args_.precompute_ref_log_probs) {
    const std::int64_t pairs = batch.input_ids.size(0) / 2;
    batch.ref_chosen_logps = input({pairs}, DType::float32);
    batch.ref_rejected_logps = input({pairs}, DType::float32);
  }
  return batch;
}

FusedCausalLMOutput DpoTrainer::call_fused(Model& model, FusedLmHead& lm_head, const ModelInputs& inputs) {
  lm_head.scored = batch_->scored;
  ModelOutputs outputs = call_model(model, inputs);
  lm_head.output.aux_loss = std::move(outputs.aux_loss);
  return std::exchange(lm_head.output, {});
}

Tensor DpoTrainer::compute_loss(ModelInputs inputs, const Tensor&, ModelOutputs* returned) {
  const Tensor completion_mask = inputs.completion_mask;
  const std::int64_t length = completion_mask.size(1) - 1;
  ModelInputs model_inputs = inputs;
  {
    const Tensor is_prompt = pointwise(Op::eq, {&completion_mask}, DType::boolean);
    model_inputs.labels = masked_fill(inputs.input_ids, is_prompt);
  }
  const FusedCausalLMOutput outputs = call_fused(model_, lm_head_, model_inputs);
  if (refused()) return {};
  const auto summed = [&](const Tensor& log_probs) { return sum(slice(log_probs, 1, 0, length), {1}, false); };
  const Tensor all_logps = summed(outputs.log_probs);
  const Pair logps = halves(all_logps);
  FusedCausalLMOutput ref_outputs;
  Tensor all_ref_logps;
  Pair ref_logps{inputs.ref_chosen_logps, inputs.ref_rejected_logps};
  if (!args_.precompute_ref_log_probs) {
    {
      const NoGrad no_grad(context_);
      const Scoped<bool> without_adapters(context_.adapters_disabled, reference_ == nullptr);
      if (reference_) {
        reference_->set_data(*batch_);
        ref_outputs = call_fused(*reference_, reference_head_, model_inputs);
        if (reference_->refusal) model_.refusal = reference_->refusal;
      } else {
        ref_outputs = call_fused(model_, lm_head_, model_inputs);
      }
    }
    if (refused()) return {};
    all_ref_logps = summed(ref_outputs.log_probs);
    ref_logps = halves(all_ref_logps);
  }
  const Pair logratios{sub(logps.chosen, ref_logps.chosen), sub(logps.rejected, ref_logps.rejected)};
  const Tensor delta_score = sub(logratios.chosen, logratios.rejected);
  const Tensor losses = per_sequence_loss(logratios, delta_score, outputs.log_probs, completion_mask);
  Tensor loss;
  {
    const Tensor weighted = mul_scalar(mean_all(losses));
    loss = add_scalar(weighted);
  }
  if (outputs.aux_loss) {
    const Tensor weighted = mul_scalar(outputs.aux_loss);
    loss = add(loss, weighted);
    const NoGrad no_grad(context_);
    const Tensor logged = mean_all(gather(outputs.aux_loss));
  }
  log_metrics(outputs, logps, logratios, completion_mask, inputs);
  if (returned) {  // the logits are made for it, by one more forward
    const NoGrad no_grad(context_);
    model_inputs.labels.reset();
    *returned = call_model(model_, model_inputs);
  }
  return loss;
}

Tensor DpoTrainer::per_sequence_loss(const Pair& logratios, const Tensor& delta_score, const Tensor& per_token_logps,
                                     const Tensor& completion_mask) const {
  const std::string_view loss = args_.loss_type;
  Tensor delta = delta_score;
  if (loss == "ipo" || loss == "sigmoid_norm") {
    const Pair masks = halves(completion_mask);
    const auto average = [](const Tensor& score, const Tensor& mask) {
      Tensor tokens = sum(mask, {1}, false);
      tokens = pointwise(Op::clamp, {&tokens}, DType::float32);
      return div(score, tokens);
    };
    const Tensor chosen = average(logratios.chosen, masks.chosen),
                 rejected = average(logratios.rejected, masks.rejected);
    delta = sub(chosen, rejected);
  }
  if (loss == "ipo") return pow(add_scalar(delta), 2);
  if (loss == "exo_pair") return exo_pair(delta);
  if (loss == "nca_pair" || loss == "bco_pair") {
    const Tensor chosen_rewards = mul_scalar(logratios.chosen), rejected_rewards = mul_scalar(logratios.rejected);
    const bool is_nca = loss == "nca_pair";
    Tensor total = neg(log_sigmoid(chosen_rewards));
    if (is_nca) {
      const Tensor other = mul_scalar(log_sigmoid(neg(chosen_rewards)));
      total = sub(total, other);
    }
    const Tensor of_rejected = log_sigmoid(neg(rejected_rewards));
    return sub(total, is_nca ? mul_scalar(of_rejected) : of_rejected);
  }
  if (loss == "robust") {
    const Tensor clean = mul_scalar(log_sigmoid(mul_scalar(delta)));
    const Tensor flipped = mul_scalar(log_sigmoid(mul_scalar(delta)));
    return div_scalar(sub(clean, flipped));
  }
  if (loss == "sppo_hard") {
    const Tensor winner = pow(add_scalar(logratios.chosen), 2), loser = pow(add_scalar(logratios.rejected), 2);
    return add(winner, loser);
  }
  if (loss == "apo_zero") {
    const Tensor chosen = neg(sigmoid(mul_scalar(logratios.chosen)));
    const Tensor rejected = sigmoid(mul_scalar(logratios.rejected));
    return add(chosen, rejected);
  }
  if (loss == "apo_down") {
    const Tensor chosen = sigmoid(mul_scalar(logratios.chosen));
    const Tensor margin = sub(logratios.chosen, logratios.rejected);
    const Tensor rejected = neg(sigmoid(mul_scalar(margin)));
    return add(chosen, rejected);
  }
  if (loss == "sft") {
    const std::int64_t length = per_token_logps.size(1);
    const Tensor mask = halves(slice(completion_mask, 1, 1, length)).chosen;
    const Tensor logps = halves(per_token_logps).chosen, is_scored = to(mask, DType::boolean);
    const Tensor mean = mean_all(index_mask(logps, is_scored, batch_->scored / 2));
    return expand(neg(mean), {logps.size(0)});
  }
  const Tensor scaled = mul_scalar(delta);
  if (loss == "discopop") {
    const Tensor modulation = sigmoid(div_scalar(scaled));
    const Tensor logistic = neg(log_sigmoid(scaled)), exponential = exp(neg(scaled));
    Tensor rest = neg(modulation);  // 1 - modulation
    rest = mul(logistic, rest);
    const Tensor other = mul(exponential, modulation);
    return add(rest, other);
  }
  if (loss == "hinge") return relu(neg(scaled));  // 1 - scaled
  return neg(log_sigmoid(scaled));
}

void DpoTrainer::log_metrics(const FusedCausalLMOutput& outputs, const Pair& logps, const Pair& logratios,
                             const Tensor& completion_mask, const ModelInputs& inputs) const {
  const NoGrad no_grad(context_);
  const std::int64_t length = completion_mask.size(1) - 1;
  const Tensor mask = slice(completion_mask, 1, 1, length);
  const auto gathered = [this](const Tensor& x) { return sum_all(gather(x)); };  // gather_for_metrics(x).sum()
  const auto ratio = [](const Tensor& part, const Tensor& of) {                  // (part / of).item() if of > 0
    { const Tensor is_any = pointwise(Op::gt, {&of}, DType::boolean); }
    const Tensor mean =
        pointwise(Op::div, {&part, &of}, is_floating_point(part.dtype()) ? part.dtype() : DType::float32);
  };
  // Names that Python holds until compute_loss returns.
  Tensor entropy_sum, total_tokens, total_sum;
  {
    const Tensor entropy = detach(outputs.entropy);
    entropy_sum = sum_all(mul(entropy, mask));
    total_tokens = sum_all(mask);
    entropy_sum = gathered(entropy_sum);
    total_tokens = gathered(total_tokens);
    ratio(entropy_sum, total_tokens);
  }
  if (context_.training) const Tensor tokens = gathered(sum_all(inputs.attention_mask));
  const Pair masks = halves(mask), mean_logits = halves(outputs.mean_logits), is_top1 = halves(outputs.is_top1);
  {
    const auto total = [&](const Tensor& logits, const Tensor& of) {
      Tensor is_scored = to(of, DType::boolean);
      const Tensor chosen = index_mask(logits, is_scored, batch_->scored / 2);
      is_scored.reset();
      return sum_all(chosen);
    };
    Tensor chosen_logits = total(mean_logits.chosen, masks.chosen), chosen_tokens = sum_all(masks.chosen);
    Tensor rejected_logits = total(mean_logits.rejected, masks.rejected), rejected_tokens = sum_all(masks.rejected);
    for (Tensor* each : {&chosen_logits, &chosen_tokens, &rejected_logits, &rejected_tokens}) {
      { const Tensor all = gathered(*each); }
      each->reset();  // item()
    }
  }
  Tensor correct_predictions;
  {
    const Tensor is_scored = to(masks.chosen, DType::boolean);
    correct_predictions = pointwise(Op::bitwise_and, {&is_top1.chosen, &is_scored}, DType::boolean);
  }
  total_tokens = sum_all(masks.chosen);
  Tensor correct_tokens = sum_all(correct_predictions);
  correct_tokens = gather(correct_tokens);
  total_tokens = gather(total_tokens);
  total_sum = sum_all(total_tokens);
  {
    { const Tensor is_any = pointwise(Op::gt, {&total_sum}, DType::boolean); }
    const Tensor correct = sum_all(correct_tokens);
    const Tensor accuracy = pointwise(Op::div, {&correct, &total_sum}, DType::float32);
  }
  const Tensor chosen_rewards = mul_scalar(detach(logratios.chosen));
  const Tensor rejected_rewards = mul_scalar(detach(logratios.rejected));
  const Tensor all_chosen = gather(chosen_rewards), all_rejected = gather(rejected_rewards);
  log_mean(all_chosen);
  log_mean(all_rejected);
  Tensor accuracies;
  {
    const Tensor is_better = pointwise(Op::gt, {&chosen_rewards, &rejected_rewards}, DType::boolean);
    accuracies = to(is_better, DType::float32);
  }
  const Tensor all_accuracies = gather(accuracies);
  log_mean(all_accuracies);
  const Tensor margins = sub(chosen_rewards, rejected_rewards), all_margins = gather(margins);
  log_mean(all_margins);
  log_mean(gather(logps.chosen));
  log_mean(gather(logps.rejected));
}

HfTrainer::Prediction DpoTrainer::prediction_step(const ModelInputs& inputs, bool prediction_loss_only) {
  return predict(inputs, inputs.input_ids, prediction_loss_only);
}

}  // namespace oometer
