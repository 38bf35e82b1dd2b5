#include "train/loops/sft_trainer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "ops/vision.h"
#include "train/objectives/label_smoother.h"

namespace oometer {

namespace {

/// entropy_from_logits (trl 1.0, trainer/utils.py), of 128 rows at a time.
Tensor entropy_from_logits(const Tensor& logits) {
  constexpr std::int64_t kRows = 128;
  const std::int64_t classes = logits.size(-1), rows = logits.numel() / classes;
  const Tensor flat_logits = reshape(logits, {rows, classes});
  std::vector<std::int64_t> sizes;
  for (std::int64_t left = rows; left > 0; left -= kRows) sizes.push_back(std::min(kRows, left));
  const TensorList chunks = split(flat_logits, sizes, 0);
  Tensor logps, chunk_entropy;  // a loop's names outlive each turn
  std::vector<Tensor> entropies;
  for (const Tensor& chunk : chunks) {
    logps = log_softmax(chunk);
    Tensor each = exp(logps);
    each = mul(each, logps);
    each = sum(each, {-1}, false);
    chunk_entropy = neg(each);
    entropies.push_back(chunk_entropy);
  }
  const Tensor all = cat(entropies, 0);
  return view(all, {logits.size(0), logits.size(1)});
}

}  // namespace

SftTrainer::SftTrainer(Context& context, Model& model, TrainingStrategy& strategy, const Objective& objective,
                       const TrainingConfig& training, const DataConfig& data,
                       const std::vector<DataConfig>& micro_batches, const std::vector<DataConfig>& evaluation)
    : HfTrainer(context, model, strategy, objective, training, data, micro_batches, evaluation) {
  if (args_.trl.fused_head) model.loss_function = &lm_head_;  // add_fused_lm_head
  if (args_.chunks_loss()) model.loss_function = &chunked_;   // _patch_chunked_ce_lm_head
}

FusedCausalLMOutput SftTrainer::call_fused(const ModelInputs& inputs) {
  lm_head_.scored = batch_->scored;
  ModelOutputs outputs = call_model(model_, inputs);
  lm_head_.output.aux_loss = std::move(outputs.aux_loss);
  return std::exchange(lm_head_.output, {});
}

ModelOutputs SftTrainer::call_for_logits(ModelInputs inputs) {
  inputs.labels.reset();
  return call_model(model_, inputs);
}

Tensor SftTrainer::compute_loss(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) {
  if (args_.chunks_loss()) return loss_of_chunks(std::move(inputs), num_items_in_batch, returned);
  if (!args_.trl.fused_head) return loss_of_logits(std::move(inputs), num_items_in_batch, returned);
  Tensor loss, num_tokens, per_token_loss, weighted_aux_loss;
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
    num_tokens = num_items_in_batch ? num_items_in_batch : sum_all(outputs.label_mask);
    const Tensor total = sum_all(per_token_loss);
    const Tensor at_least_one = pointwise(Op::clamp, {&num_tokens}, num_tokens.dtype());
    loss = div(total, at_least_one);
    if (outputs.aux_loss) weighted_aux_loss = mul_scalar(outputs.aux_loss);
  }
  if (args_.average_tokens_across_devices && num_items_in_batch) loss = mul_scalar(loss);
  if (weighted_aux_loss) {
    const Tensor of_step = div_scalar(weighted_aux_loss);
    loss = add(loss, of_step);
  }
  log_metrics(outputs, inputs);
  if (returned) {  // the logits are made for it, by one more forward
    const NoGrad no_grad(context_);
    *returned = call_for_logits(inputs);
  }
  return loss;
}

Tensor SftTrainer::loss_of_logits(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) {
  const Tensor labels = inputs.labels;
  ModelOutputs outputs;
  Tensor loss = HfTrainer::compute_loss(inputs, num_items_in_batch, &outputs);
  if (refused()) return {};
  log_metrics_of_logits(outputs.others.front(), labels, inputs);
  if (returned) *returned = std::move(outputs);
  return loss;
}

Tensor SftTrainer::loss_of_chunks(ModelInputs inputs, const Tensor& num_items_in_batch, ModelOutputs* returned) {
  chunked_.scored = batch_->scored;
  chunked_.num_items_in_batch = num_items_in_batch;
  ModelOutputs outputs;
  Tensor loss = HfTrainer::compute_loss(inputs, num_items_in_batch, &outputs);
  chunked_.num_items_in_batch.reset();
  const ChunkedNll::Counts counts = std::exchange(chunked_.counts, {});
  if (refused()) return {};
  const NoGrad no_grad(context_);
  const auto share = [&](const Tensor& part) {
    const Tensor all = sum_all(gather(part)), tokens = sum_all(gather(counts.num_valid_tokens));
    const Tensor mean = pointwise(Op::div, {&all, &tokens}, DType::float32);
  };
  share(counts.entropy_sum);
  log_tokens(inputs);
  share(counts.num_correct_tokens);
  if (returned) *returned = std::move(outputs);
  return loss;
}

void SftTrainer::log_metrics_of_logits(const Tensor& logits, const Tensor& labels, const ModelInputs& inputs) const {
  const NoGrad no_grad(context_);
  const std::int64_t shorter = labels.size(-1) - 1;
  const auto ratio = [](const Tensor& part, const Tensor& of) {
    return pointwise(Op::div, {&part, &of}, DType::float32);
  };
  // Names that Python holds until compute_loss returns.
  Tensor shift_logits, shift_labels, per_token_entropy, predictions, mask, entropy, total_tokens, correct_predictions;
  const auto correct = [&] {
    const Tensor matches = pointwise(Op::eq, {&predictions, &shift_labels}, DType::boolean);
    return pointwise(Op::bitwise_and, {&matches, &mask}, DType::boolean);
  };
  const auto shift = [&](bool copies) {
    const Tensor scores = slice(logits, 1, 0, shorter), targets = slice(labels, -1, 1, shorter);
    shift_logits = copies ? contiguous(scores) : scores;
    shift_labels = copies ? contiguous(targets) : targets;
  };
  if (args_.trl.metrics == SftMetrics::of_logits) {
    per_token_entropy = entropy_from_logits(logits);
    if (inputs.attention_mask) {
      Tensor total = mul(per_token_entropy, inputs.attention_mask);
      total = sum_all(total);
      const Tensor tokens = sum_all(inputs.attention_mask);
      entropy = ratio(total, tokens);
    } else {
      entropy = mean_all(per_token_entropy);
    }
    entropy = mean_all(gather(entropy));
    entropy.reset();  // item()
  } else {
    const bool copies = args_.trl.metrics == SftMetrics::of_copies;
    shift(copies);
    per_token_entropy = entropy_from_logits(shift_logits);
    if (!copies) predictions = reduce(Op::argmax, shift_logits, {-1}, false, DType::int64);
    mask = pointwise(Op::ne, {&shift_labels}, DType::boolean);
    entropy = mul(per_token_entropy, mask);
    entropy = sum_all(entropy);
    total_tokens = sum_all(mask);
    Tensor correct_tokens;
    if (!copies) {
      correct_predictions = correct();
      correct_tokens = sum_all(correct_predictions);
    }
    entropy = sum_all(gather(entropy));
    total_tokens = sum_all(gather(total_tokens));
    entropy = ratio(entropy, total_tokens);
    if (!copies) {
      const Tensor all_correct = sum_all(gather(correct_tokens)), total_sum = sum_all(total_tokens);
      const Tensor accuracy = ratio(all_correct, total_sum);
    }
  }
  log_tokens(inputs);
  if (args_.trl.metrics == SftMetrics::of_one_view) return;
  shift(true);
  predictions = reduce(Op::argmax, shift_logits, {-1}, false, DType::int64);
  mask = pointwise(Op::ne, {&shift_labels}, DType::boolean);
  correct_predictions = correct();
  total_tokens = sum_all(mask);
  const Tensor correct_tokens = gather(sum_all(correct_predictions));
  total_tokens = gather(total_tokens);
  const Tensor total_sum = sum_all(total_tokens), all_correct = sum_all(correct_tokens);
  const Tensor accuracy = ratio(all_correct, total_sum);
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
  log_tokens(inputs);
  if (outputs.aux_loss) const Tensor aux_loss = mean_all(gather(outputs.aux_loss));
}

void SftTrainer::log_tokens(const ModelInputs& inputs) const {
  if (!context_.training) return;
  const auto gathered = [this](const Tensor& x) { return sum_all(gather(sum_all(x))); };
  const Tensor tokens = inputs.attention_mask ? gathered(inputs.attention_mask)
                                              : sum_all(gather(empty(context_, Op::to_copy, {}, DType::int64)));
}

HfTrainer::Prediction SftTrainer::prediction_step(const ModelInputs& inputs, bool prediction_loss_only) {
  if (!args_.trl.fused_head) return HfTrainer::prediction_step(inputs, prediction_loss_only);
  return predict(inputs, inputs.labels, prediction_loss_only);
}

}  // namespace oometer
