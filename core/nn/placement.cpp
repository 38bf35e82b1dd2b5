#include "nn/placement.h"

#include <cstddef>

namespace oometer {

namespace {

/// The modules of a tree, children before the module itself.
std::vector<ModuleId> modules_by_apply(const Log& log) {
  std::vector<std::vector<ModuleId>> children(log.modules.size());
  std::vector<ModuleId> roots, order;
  for (ModuleId module = 0; module < log.modules.size(); ++module)
    (log.is_root(module) ? roots : children[log.modules[module].parent]).push_back(module);
  struct Frame {
    ModuleId module;
    std::size_t next = 0;
  };
  for (const ModuleId root : roots) {
    std::vector<Frame> stack{{root}};
    while (!stack.empty()) {
      Frame& frame = stack.back();
      if (frame.next < children[frame.module].size()) {
        const ModuleId child = children[frame.module][frame.next++];
        stack.push_back({child});
        continue;
      }
      order.push_back(frame.module);
      stack.pop_back();
    }
  }
  return order;
}

}  // namespace

void move_to_device(Context& context, const std::vector<Parameter>& parameters, const std::vector<Buffer>& buffers) {
  const std::size_t count = context.log.modules.size();
  std::vector<std::vector<const Parameter*>> of_module(count);
  std::vector<std::vector<const Buffer*>> buffers_of(count);
  for (const Parameter& parameter : parameters) of_module[parameter.module].push_back(&parameter);
  for (const Buffer& buffer : buffers) buffers_of[buffer.module].push_back(&buffer);
  for (const ModuleId module : modules_by_apply(context.log)) {
    const ModuleScope scope(context, module);
    for (const Parameter* parameter : of_module[module])
      replace_data(parameter->tensor, empty(context, Op::parameter, parameter->tensor.sizes(),
                                            parameter->tensor.dtype(), Role::parameter));
    for (const Buffer* buffer : buffers_of[module])
      replace_data(buffer->tensor,
                   empty(context, Op::buffer, buffer->tensor.sizes(), buffer->tensor.dtype(), Role::buffer));
  }
}

}  // namespace oometer
