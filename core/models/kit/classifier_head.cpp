#include "models/kit/classifier_head.h"

#include "ops/ops.h"

namespace oometer {

ClassifierHead::ClassifierHead(const Builder& root, const ClassifierConfig& config, std::int64_t hidden_size)
    : config_(config),
      score_(root.child("score", "Linear", Modality::language), hidden_size, config.num_labels,
             config.of_tokens && config.has_bias) {}

LossType ClassifierHead::loss_type() const {
  if (config_.of_tokens) return LossType::cross_entropy;
  switch (config_.problem) {
    case Problem::regression:
      return LossType::mse;
    case Problem::multi_label_classification:
      return LossType::binary_cross_entropy;
    case Problem::single_label_classification:
      break;
  }
  return LossType::cross_entropy;
}

Tensor ClassifierHead::make_labels(Context& context, const DataConfig& data) const {
  const auto input = [&](const Shape& sizes, DType dtype) {
    return empty(context, Op::input, sizes, dtype, Role::input);
  };
  const std::int64_t samples = data.micro_batch_size;
  if (config_.of_tokens) return input({samples, data.sequence_length}, DType::int64);
  switch (config_.problem) {
    case Problem::regression:
      return input(config_.num_labels == 1 ? Shape{samples} : Shape{samples, config_.num_labels}, DType::float32);
    case Problem::multi_label_classification:
      return input({samples, config_.num_labels}, DType::float32);
    case Problem::single_label_classification:
      break;
  }
  return input({samples}, DType::int64);
}

ModelOutputs ClassifierHead::classify_tokens(const Tensor& hidden_states, const ModelInputs& inputs,
                                             const LossFunction* loss_function) const {
  const Tensor sequence_output = dropout(hidden_states, config_.dropout);
  Tensor logits = score_(sequence_output);
  ModelOutputs outputs;
  if (inputs.labels) {  // ForTokenClassification (loss/loss_utils.py)
    const Tensor flat = to(view(logits, {inputs.labels.numel(), config_.num_labels}), DType::float32);
    outputs.loss = (*loss_function)(flat, view(inputs.labels, {inputs.labels.numel()}));
  }
  outputs.others.push_back(std::move(logits));
  return outputs;
}

ModelOutputs ClassifierHead::operator()(const Tensor& hidden_states, const ModelInputs& inputs, bool has_pad_token,
                                        const LossFunction* loss_function) const {
  if (config_.of_tokens) return classify_tokens(hidden_states, inputs, loss_function);
  Context& context = hidden_states.context();
  const Tensor logits = score_(hidden_states);
  const std::int64_t batch_size = logits.size(0);
  if (!has_pad_token && batch_size != 1) {
    context.refusal = Error{"missing", "/model/config",
                            "found no pad_token_id and several samples a batch, which the class cannot handle: give "
                            "\"pad_token_id\""};
    return {};
  }
  Tensor non_pad_mask, token_indices, last_non_pad_token;  // without a pad token the last is the number -1
  if (has_pad_token && inputs.input_ids) {
    non_pad_mask = pointwise(Op::ne, {&inputs.input_ids}, DType::boolean);
    non_pad_mask = to(non_pad_mask, DType::int32);
    token_indices = empty(context, Op::arange, {inputs.input_ids.size(1)}, DType::int32);
    const Tensor positions = pointwise(Op::mul, {&token_indices, &non_pad_mask}, DType::int32);
    last_non_pad_token = reduce(Op::argmax, positions, {1}, false, DType::int64);
  }
  const Tensor rows = empty(context, Op::arange, {batch_size}, DType::int64);
  ModelOutputs outputs;
  const Tensor pooled_logits =
      last_non_pad_token ? index(logits, rows, last_non_pad_token) : index(select(logits, 1, logits.size(1) - 1), rows);
  if (inputs.labels) outputs.loss = (*loss_function)(pooled_logits, inputs.labels);
  outputs.others.push_back(pooled_logits);
  return outputs;
}

}  // namespace oometer
