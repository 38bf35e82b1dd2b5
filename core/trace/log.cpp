#include "trace/log.h"

namespace oometer {

namespace {

void append_path(const Log& log, ModuleId module, std::string& path) {
  const ModuleRecord& record = log.modules[module];
  if (record.parent != module) append_path(log, record.parent, path);
  if (!path.empty()) path += '.';
  path += record.name;
  if (record.index < 0) return;
  if (!path.empty() && path.back() != '.') path += '.';  // an item of a Sequential has no name of its own
  path += std::to_string(record.index);
}

}  // namespace

std::string module_path(const Log& log, ModuleId module) {
  std::string path;
  path.reserve(96);  // mostly enough: it grows no more
  append_path(log, module, path);
  return path;
}

bool path_ends_with(const Log& log, ModuleId module, std::string_view name) {
  while (!name.empty()) {
    const ModuleRecord& record = log.modules[module];
    if (record.parent == module) return name == record.name;
    std::string_view view = record.name;
    // Nearly all names differ in their last character.
    if (record.index < 0 ? !view.ends_with(name.back()) : name.back() != '0' + record.index % 10) return false;
    std::string own;
    if (record.index >= 0) {
      own = view;
      if (!own.empty()) own += '.';  // an item of a Sequential has no name of its own
      own += std::to_string(record.index);
      view = own;
    }
    if (name == view) return true;
    if (name.size() <= view.size() || !name.ends_with(view) || name[name.size() - view.size() - 1] != '.') return false;
    name.remove_suffix(view.size() + 1);
    module = record.parent;
  }
  return false;
}

}  // namespace oometer
