#include "models/kit/classifier_head.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "ops/ops.h"

namespace oometer {

namespace {

/// Older classes that label tokens with a `classifier`, and whose loss takes its logits as they are.
constexpr std::string_view kOwnTokenHeads[] = {"BloomForTokenClassification",  "FalconForTokenClassification",
                                               "GPT2ForTokenClassification",   "GPTBigCodeForTokenClassification",
                                               "GPTNeoForTokenClassification", "MptForTokenClassification"};
/// The same name, but ForTokenClassification (loss/loss_utils.py).
constexpr std::string_view kGptNeoX = "GPTNeoXForTokenClassification";
/// Those whose base_model_prefix is the usual one: the others keep an older name.
constexpr std::string_view kUsualAnswers[] = {"MiniMaxForQuestionAnswering", "Ministral3ForQuestionAnswering",
                                              "MistralForQuestionAnswering", "MixtralForQuestionAnswering",
                                              "Qwen2MoeForQuestionAnswering"};

template <std::size_t n>
bool is_among(const std::string_view (&names)[n], std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

bool answers(const ClassifierConfig& config) {
  return std::string_view(config.class_name).ends_with("ForQuestionAnswering");
}

const char* name_of_head(const ClassifierConfig& config) {
  if (answers(config)) return "qa_outputs";
  return is_among(kOwnTokenHeads, config.class_name) || config.class_name == kGptNeoX ? "classifier" : "score";
}

}  // namespace

const char* head_that_peft_saves(std::string_view class_name) {
  const std::string name(class_name);
  return name_of_head({.class_name = name.c_str()});
}

const char* base_of_classifier(const ClassifierConfig& config, const char* usual) {
  const bool is_copy = answers(config) && std::string_view(usual) == "model";
  return is_copy && !is_among(kUsualAnswers, config.class_name) ? "transformer" : usual;
}

ModelOutputs spans_of(const Tensor& logits, const ModelInputs& inputs, const LossFunction* loss_function) {
  Tensor start_logits, end_logits;
  {
    const TensorList parts = split(logits, {1, 1}, -1);
    const auto squeeze = [](const Tensor& x) { return view(x, {x.size(0), x.size(1)}); };
    start_logits = contiguous(squeeze(parts[0]));
    end_logits = contiguous(squeeze(parts[1]));
  }
  ModelOutputs outputs;
  if (!inputs.labels && !inputs.others.empty())
    logits.context().refusal =
        Error{"not-modelled", "/training/loop/args/label_smoothing_factor",
              "HF Trainer smooths only what a batch calls \"labels\", and of spans it has none: leave it out"};
  if (inputs.labels) {
    const Tensor start_positions = pointwise(Op::clamp, {&inputs.labels}, DType::int64);
    const Tensor end_positions = pointwise(Op::clamp, {&inputs.others.front()}, DType::int64);
    const Tensor start_loss = (*loss_function)(start_logits, start_positions);
    const Tensor end_loss = (*loss_function)(end_logits, end_positions);
    const Tensor both = add(start_loss, end_loss);
    outputs.loss = div_scalar(both);
  }
  outputs.others.push_back(start_logits);
  outputs.others.push_back(end_logits);
  return outputs;
}

ClassifierHead::ClassifierHead(const Builder& root, const ClassifierConfig& config, std::int64_t hidden_size)
    : config_(config),
      score_(root.child(name_of_head(config), "Linear", Modality::language), hidden_size, config.num_labels,
             oometer::answers(config) || (config.of_tokens && config.has_bias)) {}

bool ClassifierHead::answers() const { return config_ && oometer::answers(config_); }

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
  if (config_.of_tokens && !answers()) return input({samples, data.sequence_length}, DType::int64);
  if (answers()) return input({samples}, DType::int64);
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
    Tensor flat = view(logits, {inputs.labels.numel(), config_.num_labels});
    if (!is_among(kOwnTokenHeads, config_.class_name)) flat = to(flat, DType::float32);
    outputs.loss = (*loss_function)(flat, view(inputs.labels, {inputs.labels.numel()}));
  }
  outputs.others.push_back(std::move(logits));
  return outputs;
}

ModelOutputs ClassifierHead::operator()(const Tensor& hidden_states, const ModelInputs& inputs, bool has_pad_token,
                                        const LossFunction* loss_function) const {
  if (answers()) return spans_of(score_(hidden_states), inputs, loss_function);
  if (config_.of_tokens) return classify_tokens(hidden_states, inputs, loss_function);
  const Tensor logits = score_(hidden_states);
  return pool(logits, inputs, has_pad_token, loss_function);
}

ModelOutputs ClassifierHead::pool(const Tensor& logits, const ModelInputs& inputs, bool has_pad_token,
                                  const LossFunction* loss_function) const {
  Context& context = logits.context();
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
