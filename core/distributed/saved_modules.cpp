#include "distributed/saved_modules.h"

#include <algorithm>
#include <string>

namespace oometer {

std::vector<ModuleId> saved_modules(const Log& log, const TrainingConfig& training) {
  std::vector<std::string> names;
  if (training.lora) names = training.lora->modules_to_save;
  if (training.ia3) names = training.ia3->modules_to_save;
  std::vector<ModuleId> saved;
  if (names.empty()) return saved;
  for (ModuleId module = 1; module < log.modules.size(); ++module) {
    const std::string path = module_path(log, module);
    if (std::any_of(names.begin(), names.end(), [&](const std::string& name) { return path.ends_with(name); }))
      saved.push_back(module);
  }
  return saved;
}

}  // namespace oometer
