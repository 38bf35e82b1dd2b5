#include "trace/log.h"

namespace oometer {

std::string module_path(const Log& log, ModuleId module) {
  if (module == 0) return {};
  const ModuleRecord& record = log.modules[module];
  std::string path = module_path(log, record.parent);
  if (!path.empty()) path += '.';
  path += record.name;
  if (record.index >= 0) path += '.' + std::to_string(record.index);
  return path;
}

}  // namespace oometer
