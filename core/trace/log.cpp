#include "trace/log.h"

#include <algorithm>
#include <iterator>

namespace oometer {

namespace {

/// A module's own part of its path: "q_proj", "layers.3"; of an item of a Sequential, which has no name, "3".
struct OwnName {
  explicit OwnName(const ModuleRecord& record) : name(record.name) {
    if (record.index < 0) return;
    char* at = std::end(index_text);
    for (std::int32_t rest = record.index; at == std::end(index_text) || rest > 0; rest /= 10)
      *--at = static_cast<char>('0' + rest % 10);
    index = std::string_view(at, static_cast<std::size_t>(std::end(index_text) - at));
  }
  OwnName(const OwnName&) = delete;
  OwnName& operator=(const OwnName&) = delete;

  std::string_view name, index;
  char index_text[10];
};

/// Writes a module's path into an empty string, with room for `more`.
void write_path(const Log& log, ModuleId module, std::size_t more, std::string& path) {
  const OwnName own(log.modules[module]);
  const std::size_t size = own.name.size() + own.index.size() + 2 + more;  // each behind a dot
  if (log.is_root(module))
    path.reserve(size);
  else
    write_path(log, log.modules[module].parent, size, path);
  for (const std::string_view part : {own.name, own.index}) {
    if (part.empty()) continue;
    if (!path.empty()) path += '.';
    path += part;
  }
}

}  // namespace

ModuleId Log::root_of(ModuleId module) const {
  while (!is_root(module)) module = modules[module].parent;
  return module;
}

ModuleId Log::end_of(ModuleId root) const {
  auto end = static_cast<ModuleId>(modules.size());
  if (end > 0 && root_of(end - 1) == root) return end;  // the last model
  for (end = root + 1; end < modules.size() && !is_root(end);) ++end;
  return end;
}

std::string module_path(const Log& log, ModuleId module) {
  std::string path;
  write_path(log, module, 0, path);
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
