#include "distributed/zero_offload.h"

#include <utility>

namespace oometer {

namespace {

constexpr std::uint8_t kOwnAllGatherStream = 3;  // beside those of DeepSpeedZeroOptimizerStage3

}  // namespace

DeepSpeedZeRoOffload::DeepSpeedZeRoOffload(Context& context, Model& model, const DeepSpeedConfig& config,
                                           std::int64_t world, std::vector<ZeroParameter> parameters)
    : context_(context),
      model_(model),
      config_(config),
      coordinator_(context, model.root, config_, world, config_.overlap_comm ? kOwnAllGatherStream : context.stream,
                   std::move(parameters)) {
  for (const Parameter& parameter : model.tied) coordinator_.add_use(parameter.module, parameter.tensor);
  coordinator_.mark_persistent(model.parameters);
}

ModelOutputs DeepSpeedZeRoOffload::operator()(const ModelInputs& inputs) {
  const ModuleScope scope(context_, model_.root);
  coordinator_.reset_step();
  coordinator_.before_forward(model_.root);
  ModelOutputs outputs = model_.forward(inputs);
  coordinator_.after_forward(model_.root);
  if (coordinator_.refusal()) model_.refusal = coordinator_.refusal();
  return outputs;
}

}  // namespace oometer
