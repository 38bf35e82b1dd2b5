#include "distributed/zero_init.h"

#include <algorithm>

#include "ops/ops.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/tensor_list.h"

namespace oometer {

void partition_parameter(Context& context, ZeroParameter& parameter, const DeepSpeedConfig& config,
                         std::int64_t world) {
  const NoGrad no_grad(context);
  const ModuleScope scope(context, parameter.module);
  parameter.numel = parameter.tensor.numel();
  parameter.partition_numel = divide_up(parameter.numel, world);
  if (config.offload_param == OffloadDevice::none)
    parameter.partition =
        empty(context, Op::empty, {parameter.partition_numel}, parameter.tensor.dtype(), Role::parameter);
  parameter.nothing = parameter_memory(context, parameter, 0);
  release_parameter(parameter);
}

Storage parameter_memory(Context& context, const ZeroParameter& parameter, std::int64_t numel) {
  const ModuleScope scope(context, parameter.module);
  const DType dtype = parameter.tensor.dtype();
  return context.allocate(Op::empty, checked_product(numel, element_size(dtype)), dtype, {numel}, Role::parameter);
}

void gather_parameters(Context& context, const std::vector<ZeroParameter*>& wanted, std::int64_t world) {
  const auto is_wanted = [](const ZeroParameter& parameter) {
    return parameter.status == ZeroParameter::Status::not_available;
  };
  List<Storage> copies;
  for (const ZeroParameter* parameter : wanted)
    if (world > 1 && wanted.size() > 1 && is_wanted(*parameter) && !parameter->partition)
      copies.push_back(parameter_memory(context, *parameter, parameter->partition_numel));
  for (ZeroParameter* const parameter : wanted) {
    if (!is_wanted(*parameter)) continue;
    parameter->status = ZeroParameter::Status::available;
    if (world == 1 && wanted.size() > 1)
      set_data(parameter->tensor, parameter->partition ? Storage(parameter->partition->storage)
                                                       : parameter_memory(context, *parameter, parameter->numel));
    else
      set_data(parameter->tensor,
               parameter_memory(context, *parameter, checked_product(parameter->partition_numel, world)));
    collective(
        context, Op::all_gather,
        checked_product(checked_product(parameter->partition_numel, world), element_size(parameter->tensor.dtype())),
        parameter->tensor.dtype(), world);
    if (wanted.size() == 1 && !context.behaviours.zero_3_gathers_in_place)
      set_data(parameter->tensor, parameter_memory(context, *parameter, parameter->numel));
    if (wanted.size() == 1 && !parameter->partition)
      const Storage copy = parameter_memory(context, *parameter, parameter->partition_numel);
  }
}

void release_parameter(ZeroParameter& parameter) {
  set_data(parameter.tensor, parameter.nothing);
  parameter.status = ZeroParameter::Status::not_available;
}

ZeroInit::ZeroInit(Context& context, const DeepSpeedConfig& config, std::int64_t world, DType dtype)
    : context_(context), config_(config), world_(world), dtype_(dtype) {
  context.construction = this;
  context.zero_3_linear = config.memory_efficient_linear;
}

ZeroInit::~ZeroInit() { context_.construction = nullptr; }

/// What is made in another type is cast (zero_wrapper_for_fp_tensor_constructor).
void ZeroInit::parameter_made(const Tensor& parameter, ModuleId module) {
  if (parameter.dtype() != dtype_) {
    const NoGrad no_grad(context_);
    replace_data(parameter, to(parameter, dtype_));
  }
  pending_.push_back({parameter, module, 0, 0, {}, {}, {}});
}

/// Modules that do not hold `next` are through; the innermost was first.
void ZeroInit::complete(ModuleId next) {
  const auto holds = [&](ModuleId module) {
    ModuleId ancestor = next;
    while (ancestor > module) ancestor = context_.log.modules[ancestor].parent;
    return ancestor == module;
  };
  while (!pending_.empty()) {
    const ModuleId module = pending_.back().module;
    if (next != kNever && holds(module)) return;
    const auto first = std::find_if(pending_.begin(), pending_.end(),
                                    [&](const ZeroParameter& parameter) { return parameter.module == module; });
    for (auto parameter = first; parameter != pending_.end(); ++parameter) {
      partition_parameter(context_, *parameter, config_, world_);
      done_.push_back(std::move(*parameter));
    }
    pending_.erase(first, pending_.end());
  }
}

std::vector<ZeroParameter> ZeroInit::finish() {
  complete(kNever);
  context_.construction = nullptr;
  // tie_weights has put another parameter in the place of one.
  std::erase_if(done_, [](const ZeroParameter& parameter) { return parameter.tensor->references == 1; });
  return std::move(done_);
}

}  // namespace oometer
