#include "models/model.h"

namespace oometer {

std::unique_ptr<Model> build_model(Context& context, const ModelConfig& config, const DataConfig& data,
                                   const ModelOptions& options) {
  const auto root = static_cast<ModuleId>(context.log.modules.size());
  std::unique_ptr<Model> model = config.family().build(context, config.config(), data, options);
  model->root = root;
  sort_by_module(model->parameters);
  return model;
}

}  // namespace oometer
