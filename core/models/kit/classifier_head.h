#pragma once

#include <string_view>

#include "models/llama/config.h"
#include "models/loss_function.h"
#include "models/model.h"
#include "nn/module.h"

namespace oometer {

/// What GenericForSequenceClassification and GenericForTokenClassification (transformers 5.23, modeling_layers.py) put
/// on a decoder in place of lm_head, and older classes that are written out likewise: a head without bias that scores
/// the last token of each sequence, or one that labels every token behind a dropout. GenericForQuestionAnswering is the
/// third: two logits a token, of where an answer begins and ends.
class ClassifierHead {
 public:
  ClassifierHead() = default;
  ClassifierHead(const Builder& root, const ClassifierConfig& config, std::int64_t hidden_size);
  explicit operator bool() const { return static_cast<bool>(config_); }

  LossType loss_type() const;
  /// It has a second tensor of labels, like the first: end_positions, beside start_positions.
  bool answers() const;
  /// Of sequences [b], of several at once [b, num_labels]; of tokens [b, s]; of answers [b].
  Tensor make_labels(Context& context, const DataConfig& data) const;
  /// hidden_states: [b, s, hidden]. Sets `context.refusal` where the class itself would stop.
  ModelOutputs operator()(const Tensor& hidden_states, const ModelInputs& inputs, bool has_pad_token,
                          const LossFunction* loss_function) const;
  /// What comes behind the head of sequences. logits: [b, s, num_labels].
  ModelOutputs pool(const Tensor& logits, const ModelInputs& inputs, bool has_pad_token,
                    const LossFunction* loss_function) const;
  const Linear& linear() const { return score_; }

 private:
  ModelOutputs classify_tokens(const Tensor& hidden_states, const ModelInputs& inputs,
                               const LossFunction* loss_function) const;

  ClassifierConfig config_;
  Linear score_;
};

/// What a class of such a name calls its decoder, where Llama's copies have `usual`.
const char* base_of_classifier(const ClassifierConfig& config, const char* usual);

/// What the head of such a class is called, which peft trains whole where the task_type is that of the class: SEQ_CLS,
/// TOKEN_CLS or QUESTION_ANS.
const char* head_that_peft_saves(std::string_view class_name);

/// The loss of where an answer begins and ends, and the logits of both. logits: [b, s, 2].
ModelOutputs spans_of(const Tensor& logits, const ModelInputs& inputs, const LossFunction* loss_function);

}  // namespace oometer
