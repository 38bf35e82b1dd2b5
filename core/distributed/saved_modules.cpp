#include "distributed/saved_modules.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

namespace oometer {

namespace {

/// modules_to_save of an adapter_config.json.
[[gnu::noinline]] std::vector<std::string> saved_by(const PeftAdapter& adapter) {
  const nlohmann::json config = nlohmann::json::parse(adapter.config);
  const auto names = config.find("modules_to_save");
  return names == config.end() || !names->is_array() ? std::vector<std::string>()
                                                     : names->get<std::vector<std::string>>();
}

}  // namespace

std::vector<ModuleId> saved_modules(const Log& log, const TrainingConfig& training) {
  std::vector<std::string> names;
  if (training.lora) names = training.lora->modules_to_save;
  if (training.ia3) names = training.ia3->modules_to_save;
  if (!training.peft.empty()) names = saved_by(training.peft.front());
  std::vector<ModuleId> saved;
  if (names.empty()) return saved;
  for (ModuleId module = 1; module < log.modules.size(); ++module) {
    const std::string path = module_path(log, module);
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return path.ends_with(name); }))
      saved.push_back(module);
  }
  return saved;
}

// Tensor.__deepcopy__ (torch/_tensor.py): a copy of the storage, set into a tensor without sizes.
void copy_saved_buffers(Context& context, const TrainingConfig& training, Model& model) {
  const std::size_t count = model.buffers.size();
  std::vector<char> copied(count, false);
  for (const ModuleId saved : saved_modules(context.log, training))
    for (std::size_t i = 0; i < count; ++i) {
      const Buffer original = model.buffers[i];
      ModuleId module = original.module;
      while (module > saved) module = context.log.modules[module].parent;
      if (module != saved || copied[i]) continue;
      copied[i] = true;
      const ModuleScope scope(context, original.module);
      model.buffers.push_back(
          {empty(context, Op::clone, original.tensor.sizes(), original.tensor.dtype(), Role::buffer), original.module});
      const Tensor without_sizes = empty(context, Op::clone, {}, original.tensor.dtype());
    }
}

}  // namespace oometer
