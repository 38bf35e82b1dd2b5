#include "models/kit/sequence_classifier.h"

#include <utility>

#include "ops/ops.h"

namespace oometer {

namespace {

LossType loss_of(Problem problem) {
  switch (problem) {
    case Problem::regression:
      return LossType::mse;
    case Problem::multi_label_classification:
      return LossType::binary_cross_entropy;
    case Problem::single_label_classification:
      break;
  }
  return LossType::cross_entropy;
}

class SequenceClassifier : public LanguageModel {
 public:
  SequenceClassifier(Context& context, const LlamaConfig& config, const DataConfig& data, const ModelOptions& options,
                     DecoderParts parts)
      : LanguageModel(context, config.classifier.class_name, Modality::language, data, options),
        config_(config.classifier) {
    const char* const name = parts.model;
    make_decoder(root_.child(name, config.names->model), config, options, std::move(parts));
    score_ = Linear(root_.child("score", "Linear", Modality::language), config.hidden_size, config_.num_labels, false);
    has_pad_token = config.has_pad_token;
    loss_type = loss_of(config_.problem);
    prompt_shape = {config.hidden_size, config.num_hidden_layers, config.num_attention_heads,
                    config.num_key_value_heads, config.head_dim};
  }

  Tensor embed(const Tensor& input_ids) const override { return language_model_.embed(input_ids); }

  ModelOutputs forward(const ModelInputs& inputs) override {
    const Tensor hidden_states = run_text_model(inputs);
    const Tensor logits = score_(hidden_states);
    const std::int64_t batch_size = logits.size(0);
    if (!has_pad_token && batch_size != 1) {
      refusal = Error{"missing", "/model/config",
                      "found no pad_token_id and several samples a batch, which the class cannot handle: give "
                      "\"pad_token_id\""};
      return {};
    }
    Tensor non_pad_mask, token_indices, last_non_pad_token;  // without a pad token the last is the number -1
    if (has_pad_token && inputs.input_ids) {
      non_pad_mask = pointwise(Op::ne, {&inputs.input_ids}, DType::boolean);
      non_pad_mask = to(non_pad_mask, DType::int32);
      token_indices = empty(context_, Op::arange, {inputs.input_ids.size(1)}, DType::int32);
      const Tensor positions = pointwise(Op::mul, {&token_indices, &non_pad_mask}, DType::int32);
      last_non_pad_token = reduce(Op::argmax, positions, {1}, false, DType::int64);
    }
    const Tensor rows = empty(context_, Op::arange, {batch_size}, DType::int64);
    ModelOutputs outputs;
    const Tensor pooled_logits = last_non_pad_token ? index(logits, rows, last_non_pad_token)
                                                    : index(select(logits, 1, logits.size(1) - 1), rows);
    if (inputs.labels) outputs.loss = (*loss_function)(pooled_logits, inputs.labels);
    outputs.others.push_back(pooled_logits);
    return outputs;
  }

 private:
  Tensor make_labels() override {
    const std::int64_t samples = data_.micro_batch_size;
    switch (config_.problem) {
      case Problem::regression:
        return input(config_.num_labels == 1 ? Shape{samples} : Shape{samples, config_.num_labels}, DType::float32);
      case Problem::multi_label_classification:
        return input({samples, config_.num_labels}, DType::float32);
      case Problem::single_label_classification:
        break;
    }
    return input({samples});
  }

  ClassifierConfig config_;
  Linear score_;
};

}  // namespace

std::unique_ptr<Model> make_sequence_classifier(Context& context, const LlamaConfig& config, const DataConfig& data,
                                                const ModelOptions& options, DecoderParts parts) {
  return std::make_unique<SequenceClassifier>(context, config, data, options, std::move(parts));
}

}  // namespace oometer
