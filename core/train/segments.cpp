#include "train/segments.h"

#include <algorithm>
#include <string_view>

namespace oometer {

namespace {

bool ends_with(std::string_view path, std::string_view name) {
  return path == name ||
         (path.size() > name.size() && path.ends_with(name) && path[path.size() - name.size() - 1] == '.');
}

bool is_block(const ModuleRecord& record) { return record.index >= 0 && record.name[0] != '\0'; }

}  // namespace

std::vector<Stack> stacks_of(const Log& log) {
  std::vector<Stack> stacks;
  for (ModuleId module = 1; module < log.modules.size(); ++module) {
    const ModuleRecord& record = log.modules[module];
    if (!is_block(record)) continue;
    ModuleId above = record.parent;
    while (!log.is_root(above) && !is_block(log.modules[above])) above = log.modules[above].parent;
    if (!log.is_root(above)) continue;
    const std::string parent = module_path(log, record.parent);
    const std::string path = parent + (parent.empty() ? "" : ".") + record.name;
    if (stacks.empty() || stacks.back().path != path) stacks.push_back({path, 0});
    ++stacks.back().blocks;
  }
  return stacks;
}

std::optional<Error> check_segments(const Log& log, const std::vector<StackSegments>& segments) {
  if (segments.empty()) return std::nullopt;
  const std::vector<Stack> stacks = stacks_of(log);
  for (const StackSegments& given : segments) {
    const std::string pointer = "/training/activation_checkpointing/segments/" + given.stack;
    bool found = false;
    for (const Stack& stack : stacks) {
      if (!ends_with(stack.path, given.stack)) continue;
      found = true;
      if (!given.segments.empty() && given.segments.back().end > stack.blocks)
        return Error{"out-of-range", pointer,
                     "found block " + std::to_string(given.segments.back().end - 1) + "; " + stack.path + " has " +
                         std::to_string(stack.blocks) + " blocks, from 0"};
    }
    if (found) continue;
    std::string known;
    for (const Stack& stack : stacks) known += (known.empty() ? "" : ", ") + stack.path;
    return Error{"unknown-value", pointer, "expected a stack of blocks; the model has " + known};
  }
  return std::nullopt;
}

}  // namespace oometer
