#pragma once

#include "models/llama/config.h"
#include "models/loss_function.h"
#include "models/model.h"
#include "nn/module.h"

namespace oometer {

/// What GenericForSequenceClassification and GenericForTokenClassification (transformers 5.23, modeling_layers.py) put
/// on a decoder in place of lm_head, and older classes that are written out likewise: a head without bias that scores
/// the last token of each sequence, or one that labels every token behind a dropout.
class ClassifierHead {
 public:
  ClassifierHead() = default;
  ClassifierHead(const Builder& root, const ClassifierConfig& config, std::int64_t hidden_size);
  explicit operator bool() const { return static_cast<bool>(config_); }

  LossType loss_type() const;
  /// Of sequences [b], of several at once [b, num_labels]; of tokens [b, s].
  Tensor make_labels(Context& context, const DataConfig& data) const;
  /// hidden_states: [b, s, hidden]. Sets `context.refusal` where the class itself would stop.
  ModelOutputs operator()(const Tensor& hidden_states, const ModelInputs& inputs, bool has_pad_token,
                          const LossFunction* loss_function) const;

 private:
  ModelOutputs classify_tokens(const Tensor& hidden_states, const ModelInputs& inputs,
                               const LossFunction* loss_function) const;

  ClassifierConfig config_;
  Linear score_;
};

}  // namespace oometer
