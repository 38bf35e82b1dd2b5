#pragma once

#include <functional>

#include "models/model.h"
#include "nn/module.h"

namespace oometer {

/// trl.AutoModelForCausalLMWithValueHead of 0.24 (models/modeling_value_head.py): a model with a second head, which
/// gives a number for each token. The model outlives it.
class ValueHeadModel {
 public:
  /// What of `model` is called is what is around it now. Its parameters get those of the head.
  ValueHeadModel(Context& context, Model& model);
  /// lm_logits, loss, value: the first and the last of these are the outputs' `others`.
  ModelOutputs operator()(const ModelInputs& inputs);

 private:
  Tensor v_head(const Tensor& hidden_states) const;

  Model& model_;
  std::function<ModelOutputs(const ModelInputs&)> pretrained_model_;
  ModuleId module_;
  Linear summary_;
};

}  // namespace oometer
