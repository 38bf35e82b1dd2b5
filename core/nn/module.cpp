#include "nn/module.h"

#include <algorithm>

#include "nn/linear4bit.h"
#include "nn/quantizer.h"
#include "ops/liger.h"
#include "ops/ops.h"
#include "sort_by.h"

namespace oometer {

void sort_by_module(std::vector<Parameter>& parameters) {
  const auto before = [](const Parameter& a, const Parameter& b) { return a.module < b.module; };
  if (!std::is_sorted(parameters.begin(), parameters.end(), before))
    sort_by(parameters, [](const Parameter& parameter) { return parameter.module; });
}

void cast_parameter(const Tensor& parameter, DType dtype) {
  if (parameter.dtype() == dtype) return;
  Context& context = parameter.context();
  const ModuleId owner = context.record(parameter) ? context.record(parameter)->module : 0;
  const NoGrad no_grad(context);
  const ModuleScope scope(context, owner);
  replace_data(parameter, to(parameter, dtype));
  context.set_role(parameter, Role::parameter, owner);
}

Builder Builder::child(const char* name, const char* type, std::int32_t index) const {
  Builder result = *this;
  result.module = context->add_module(module, name, index, type, modality);
  return result;
}

Builder Builder::child(const char* name, const char* type, Modality child_modality) const {
  Builder result = *this;
  result.modality = child_modality;
  result.module = context->add_module(module, name, -1, type, child_modality);
  return result;
}

/// A pattern of Trainer.get_decay_parameter_names, which finds it in the names of modules, too (T5's
/// relative_attention_bias).
static bool is_named_bias(std::string_view name) { return name.find("bias") != std::string_view::npos; }

Tensor Builder::parameter(const char* name, const Shape& sizes) const {
  const ModuleScope scope(*context, module);
  Tensor tensor = empty(*context, Op::parameter, sizes, dtype, Role::parameter);
  tensor->leaf_requires_grad = true;
  const bool decays = !in_norm && !is_named_bias(name) && !is_named_bias(context->log.modules[module].name);
  parameters->push_back({tensor, module, name, decays});
  if (context->construction) context->construction->parameter_made(tensor, module);
  return tensor;
}

void Builder::children_are_through() const {
  if (context->construction) context->construction->module_reached(module);
}

Tensor Builder::buffer(const Shape& sizes, DType buffer_dtype) const {
  children_are_through();
  const ModuleScope scope(*context, module);
  return buffers->emplace_back(Buffer{empty(*context, Op::buffer, sizes, buffer_dtype, Role::buffer), module}).tensor;
}

Tensor Builder::kept_buffer(const Shape& sizes) const {
  Tensor tensor = buffer(sizes, context->construction ? DType::float32 : dtype);
  buffers->back().is_kept_in_float32 = true;
  return tensor;
}

Tensor cast_forward_input(const Tensor& x, ModuleId module) {
  const ModuleListener* const modules = x.context().modules;
  const std::optional<DType> dtype = modules && modules->hears(module) ? modules->input_dtype(module) : std::nullopt;
  return dtype ? to(x, *dtype) : x;
}

Linear::Linear(const Builder& builder_in, std::int64_t in_features, std::int64_t out_features, bool with_bias) {
  Builder builder = builder_in;
  if (builder.quantizer) quantized = builder.quantizer->quantize(builder, {out_features, in_features});
  if (builder.wrapping) {
    if (builder.quantizer) builder.dtype = builder.quantizer->adapter_dtype(quantized != nullptr, builder.dtype);
    wrapper = builder.wrapping->wrap_linear(builder, in_features, out_features);
    builder.dtype = builder_in.dtype;
  }
  module = builder.module;
  if (quantized) builder.context->log.modules[module].type = "Linear4bit";
  weight = builder.parameter("weight", {out_features, in_features});
  if (with_bias) bias = builder.parameter("bias", {out_features});
}

Tensor Linear::operator()(const Tensor& x) const { return wrapper ? (*wrapper)(*this, x) : forward(x); }

Tensor Linear::forward(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  if (quantized) return linear_4bit(x, quantized, bias);
  return call.result(linear(call.argument(x), weight, bias));
}

Embedding::Embedding(const Builder& builder_in, std::int64_t count, std::int64_t size) {
  Builder builder = builder_in;
  if (builder.wrapping) wrapper = builder.wrapping->wrap_embedding(builder, count, size);
  module = builder.module;
  weight = builder.parameter("weight", {count, size});
}

Tensor Embedding::operator()(const Tensor& indices, const ForwardHook& hook) const {
  return wrapper ? (*wrapper)(*this, indices, hook) : forward(indices, hook);
}

Tensor Embedding::forward(const Tensor& indices, const ForwardHook& hook) const {
  Tensor result;
  {
    ModuleCall call(indices.context(), module);
    result = call.result(embedding(weight, indices));
  }
  if (hook) hook(result);
  return result;
}

LayerNorm::LayerNorm(const Builder& builder_in, std::int64_t size) : module(builder_in.module) {
  Builder builder = builder_in;
  builder.in_norm = true;
  weight = builder.parameter("weight", {size});
  bias = builder.parameter("bias", {size});
}

Tensor LayerNorm::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  const Tensor hidden_states = call.argument(x);
  return call.result(liger ? liger_layer_norm(hidden_states, weight, bias) : layer_norm(hidden_states, weight, bias));
}

Conv2d::Conv2d(const Builder& builder, std::int64_t in_channels, std::int64_t out_channels, std::int64_t kernel,
               bool with_bias)
    : module(builder.module) {
  weight = builder.parameter("weight", {out_channels, in_channels, kernel, kernel});
  if (with_bias) bias = builder.parameter("bias", {out_channels});
}

Tensor Conv2d::operator()(const Tensor& x) const {
  ModuleCall call(x.context(), module);
  return call.result(convolution(call.argument(x), weight, bias));
}

}  // namespace oometer
