#include "models/model.h"

namespace oometer {

std::unique_ptr<Model> build_model(Context& context, const ModelConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  std::unique_ptr<Model> model = config.family().build(context, config.config(), data, options);
  sort_by_module(model->parameters);
  return model;
}

}  // namespace oometer
