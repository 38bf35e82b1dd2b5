#include "train/objectives/fused_lm_head.h"

#include <cstddef>
#include <utility>
#include <vector>

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "train/step.h"

namespace oometer {

namespace {

constexpr std::int64_t kClasses = 32768;  // _CHUNKED_LOGPROB_CHUNK_SIZE

/// x.new_zeros(mask.shape).masked_scatter(mask, x)
Tensor spread(const Tensor& x, const Tensor& mask) {
  const Tensor zeros = empty(x.context(), Op::zeros, mask.sizes(), x.dtype());
  return masked_scatter(zeros, mask, x);
}

}  // namespace

Tensor FusedLmHead::of_hidden_states(const Tensor& hidden_in, const Linear& lm_head, const Tensor& labels_in) const {
  Context& context = hidden_in.context();
  const auto read = [&](const Tensor& parameter) {  // lm_head itself is not called
    if (context.modules && parameter) context.modules->read(parameter);
  };
  read(lm_head.weight);
  read(lm_head.bias);
  const std::int64_t length = labels_in.size(1) - 1;
  const Tensor hidden_states = slice(hidden_in, 1, 0, length), labels = slice(labels_in, 1, 1, length);
  FusedCausalLMOutput result;
  result.label_mask = pointwise(Op::ne, {&labels}, DType::boolean);
  const auto full = [&](const Tensor& parameter) {
    return context.modules && parameter ? context.modules->full_tensor(parameter) : parameter;
  };
  const Tensor weight = full(lm_head.weight), bias = full(lm_head.bias);
  {
    ChunkedLogProbs per_token;
    {
      const Tensor chosen = index_mask(hidden_states, result.label_mask, scored);
      const Tensor targets = index_mask(labels, result.label_mask, scored);
      per_token = chunked_log_probs(chosen, weight, targets, kClasses, outputs_, bias);
    }
    result.log_probs = spread(per_token.log_probs, result.label_mask);
    if (outputs_.entropy) result.entropy = spread(per_token.entropy, result.label_mask);
    if (outputs_.mean_logits) result.mean_logits = spread(per_token.mean_logits, result.label_mask);
    if (outputs_.is_top1) result.is_top1 = spread(per_token.is_top1, result.label_mask);
  }
  Tensor total = sum_all(result.log_probs);
  total = neg(total);
  Tensor count = sum_all(result.label_mask);
  count = pointwise(Op::clamp, {&count}, DType::int64);
  result.loss = div(total, count);
  output = std::move(result);
  return output.loss;
}

void after_fused_forward(TrainingStrategy& wrapper, FusedCausalLMOutput& fused, ModelOutputs& outputs) {
  fused.loss.reset();  // the model's, which `outputs` has
  std::vector<Tensor*> members;
  for (Tensor* member : {&fused.log_probs, &fused.entropy, &fused.mean_logits, &fused.is_top1, &fused.label_mask})
    if (*member) members.push_back(member);
  const std::size_t before = outputs.others.size();
  for (Tensor* member : members) outputs.others.push_back(std::move(*member));
  wrapper.after_forward(outputs);
  fused.loss = outputs.loss;
  for (std::size_t i = 0; i < members.size(); ++i) *members[i] = outputs.others[before + i];
}

}  // namespace oometer
