#include "peft/layer.h"

#include <string_view>

namespace oometer {

void cast_buffer(const Tensor& buffer, ModuleId module) {
  if (!is_half(buffer.dtype())) return;
  Context& context = buffer.context();
  const ModuleScope scope(context, module);
  replace_data(buffer, to(buffer, DType::float32));
  context.set_role(buffer, Role::buffer, module);
}

TunerLayer::TunerLayer(const LayerPlace& place, const char* type)
    : in_features_(place.in_features),
      out_features_(place.out_features),
      inside_(place.builder),
      module_(place.builder.module) {
  inside_.wrapping = nullptr;
  inside_.quantizer = nullptr;
  inside_.context->log.modules[module_].type = type;
  place.builder = inside_.child("base_layer", "Linear");
  base_layer_ = place.builder.module;
}

void TunerLayer::declare(AdapterParameter& parameter, const char* name, const char* type, std::int32_t index) {
  parameter.dict = inside_.child(name, type, index);
  entries_.push_back(&parameter);
}

void TunerLayer::make(std::vector<Parameter>& parameters, AdapterParameter& parameter, const Shape& sizes,
                      bool trains) {
  parameter.dict.parameters = &parameters;
  parameter.tensor = parameter.dict.parameter("default", sizes);
  parameter.tensor->leaf_requires_grad = trains;
}

void TunerLayer::cast_parameters(LastCast& param) const {
  for (const AdapterParameter* entry : entries_) {
    if (!entry->tensor) continue;
    const ModuleRecord& dict = inside_.context->log.modules[entry->dict.module];
    if (dict.type != std::string_view("ParameterDict"))
      param = is_half(entry->tensor.dtype()) ? Storage(entry->tensor->storage) : Storage();
    cast_half(entry->tensor);
  }
}

void TunerLayer::add_dropout(const char* name, double probability) {
  dropout_ = probability;
  dropout_module_ = inside_.child(name, probability > 0 ? "Dropout" : "Identity").module;
}

Tensor TunerLayer::dropout(const Tensor& x) const {
  const ModuleScope scope(x.context(), dropout_module_);
  return oometer::dropout(x, dropout_);
}

Tensor TunerLayer::base_weight(std::span<const Parameter> parameters, std::span<const Parameter> tied) const {
  for (const std::span<const Parameter> some : {parameters, tied})
    for (const Parameter& parameter : some)
      if (parameter.module == base_layer_) return parameter.tensor;
  return {};
}

Tensor TunerLayer::operator()(const Linear& base_layer, const Tensor& x) const {
  const ModuleScope scope(x.context(), module_);
  return x.context().adapters_disabled ? base_layer.forward(x) : forward(base_layer, x);
}

}  // namespace oometer
