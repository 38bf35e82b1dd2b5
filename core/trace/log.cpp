#include "trace/log.h"

namespace oometer {

std::string module_path(const Log& log, ModuleId module) {
  if (module == 0) return {};
  const ModuleRecord& record = log.modules[module];
  std::string path = module_path(log, record.parent);
  if (!path.empty()) path += '.';
  path += record.name;
  if (record.index < 0) return path;
  if (!path.empty() && path.back() != '.') path += '.';  // an item of a Sequential has no name of its own
  path += std::to_string(record.index);
  return path;
}

}  // namespace oometer
