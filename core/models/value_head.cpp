#include "models/value_head.h"

#include <utility>

#include "nn/hidden_states.h"
#include "ops/ops.h"

namespace oometer {

ValueHeadModel::ValueHeadModel(Context& context, Model& model) : model_(model), pretrained_model_(model.around) {
  if (!pretrained_model_) pretrained_model_ = [&model](const ModelInputs& inputs) { return model.forward(inputs); };
  Builder root;
  root.context = &context;
  root.parameters = &model.parameters;
  root.buffers = &model.buffers;
  root.module = model.root;
  const Builder head = root.child("v_head", "ValueHead");
  module_ = head.module;
  summary_ = Linear(head.child("summary", "Linear"), model.prompt_shape.hidden_size, 1, true);
}

Tensor ValueHeadModel::v_head(const Tensor& hidden_states) const {
  constexpr double kSummaryDropoutProb = 0.1;
  const ModuleScope scope(hidden_states.context(), module_);
  Tensor output = dropout(hidden_states, hidden_states.context().training ? kSummaryDropoutProb : 0);
  output = to(output, summary_.weight.dtype());
  return summary_(output);
}

ModelOutputs ValueHeadModel::operator()(const ModelInputs& inputs) {
  Context& context = inputs.input_ids.context();
  HiddenStates hidden_states;
  ModelOutputs base_model_output;
  {
    const Scoped<HiddenStates*> collecting(context.hidden_states, &hidden_states);
    base_model_output = pretrained_model_(inputs);
  }
  if (model_.refusal || context.refusal) return {};
  const Tensor last_hidden_state = hidden_states.last();
  if (!last_hidden_state) {
    model_.refusal = Error{"not-modelled", "/training/loop",
                           "found a value head on a model whose hidden states are not known, which is not supported "
                           "yet; expected a decoder of text"};
    return {};
  }
  const Tensor value = v_head(last_hidden_state);
  ModelOutputs outputs;
  outputs.loss = base_model_output.loss;
  outputs.others.push_back(to(base_model_output.others.front(), DType::float32));
  outputs.others.push_back(view(value, {value.size(0), value.size(1)}));
  return outputs;
}

}  // namespace oometer
