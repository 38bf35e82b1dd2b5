#include "peft/modules_to_save.h"

#include <string_view>

#include "ops/ops.h"

namespace oometer {

SavedModule::SavedModule(Builder& builder) : module_(builder.module) {
  Builder inside = builder;
  inside.wrapping = nullptr;
  const char* const type = builder.context->log.modules[builder.module].type;
  builder = inside.child("original_module", type);
  original_ = builder.module;
  copy_ = inside.child("modules_to_save.default", type);
}

void SavedModule::copy(std::vector<Parameter>& parameters, std::span<const Parameter> tied) {
  std::vector<Parameter> originals;
  for (const std::span<const Parameter> some : {std::span<const Parameter>(parameters), tied})
    for (const Parameter& parameter : some)
      if (parameter.module == original_) originals.push_back(parameter);
  Context& context = *copy_.context;
  const ModuleScope scope(context, copy_.module);
  for (const Parameter& original : originals) {
    const Tensor copied = clone(detach(original.tensor));
    copied->leaf_requires_grad = true;
    context.set_role(copied, Role::parameter, copy_.module);
    parameters.push_back({copied, copy_.module, original.name, original.decays});
    (original.name == std::string_view("bias") ? bias_ : weight_) = copied;
  }
}

Tensor SavedModule::operator()(const Linear& original, const Tensor& x) const {
  if (x.context().adapters_disabled) return original.forward(x);
  const ModuleScope scope(x.context(), copy_.module);
  return linear(x, weight_, bias_);
}

Tensor SavedModule::operator()(const Embedding& original, const Tensor& indices, const ForwardHook& hook) const {
  if (indices.context().adapters_disabled) return original.forward(indices, hook);
  const ModuleScope scope(indices.context(), copy_.module);
  Tensor result = embedding(weight_, indices);
  if (hook) hook(result);  // copied with the module
  return result;
}

}  // namespace oometer
