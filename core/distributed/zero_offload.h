#pragma once

#include <cstdint>
#include <vector>

#include "distributed/parameter_coordinator.h"
#include "models/model.h"

namespace oometer {

/// DeepSpeedZeRoOffload (runtime/zero/parameter_offload.py, 0.19.8): ZeRO-3 without an optimizer, around a model that
/// is only asked. It hangs on the model's hooks, so that it stands around `model(...)`.
class DeepSpeedZeRoOffload {
 public:
  /// `parameters`: those that zero.Init has cut.
  DeepSpeedZeRoOffload(Context& context, Model& model, const DeepSpeedConfig& config, std::int64_t world,
                       std::vector<ZeroParameter> parameters);

  ModelOutputs operator()(const ModelInputs& inputs);

 private:
  Context& context_;
  Model& model_;
  const DeepSpeedConfig config_;
  ParameterCoordinator coordinator_;
};

}  // namespace oometer
