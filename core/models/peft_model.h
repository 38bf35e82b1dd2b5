#pragma once

#include "models/model.h"
#include "nn/rows.h"
#include "peft/tuner.h"

namespace oometer {

/// PeftModelForCausalLM (peft 0.21, peft_model.py): its forward around a model's own, until which both live.
class PeftModel {
 public:
  PeftModel(Model& model, Tuner& tuner) : model_(model), tuner_(tuner) {}
  ModelOutputs operator()(const ModelInputs& inputs);

 private:
  ModelOutputs with_prompt(const ModelInputs& inputs);
  ModelOutputs with_prefix(const ModelInputs& inputs);

  Model& model_;
  Tuner& tuner_;
  Rows rows_;  ///< what stands in the batch with its virtual tokens
};

}  // namespace oometer
