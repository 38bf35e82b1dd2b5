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
  // A module knows what it is in: written from the end, once it is known how long it is.
  const auto for_each = [&](const auto& call) {
    for (ModuleId at = module;; at = log.modules[at].parent) {
      const OwnName own(log.modules[at]);
      if (!own.index.empty()) call(own.index);
      if (!own.name.empty()) call(own.name);
      if (log.is_root(at)) return;
    }
  };
  std::size_t size = 0;
  for_each([&](std::string_view name) { size += name.size() + (size > 0 ? 1 : 0); });
  std::string path(size, '.');
  char* begin = path.data() + size;
  for_each([&](std::string_view name) {
    if (begin != path.data() + size) --begin;
    begin = std::copy_backward(name.begin(), name.end(), begin);
  });
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
