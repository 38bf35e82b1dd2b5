#include "peft/dora.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ops/ops.h"

namespace oometer {

void DoraAdapter::add_modules(const Builder& layer, int kind) {
  LoraAdapter::add_modules(layer, kind);
  if (kind == 3) lora_magnitude_vector_ = layer.child(model_.name_of(adapter_, kind), "DoraLinearLayer").module;
}

// DoraLinearVariant.init, DoraLinearLayer.update_layer: the lengths that the weight has now.
void DoraAdapter::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                                  const GatherParameters& gather, ModuleId base_layer) {
  LoraAdapter::make_parameters(parameters, tied, gather, base_layer);
  TensorList of_base;  // the weight first
  for (const std::span<const Parameter> some : {std::span<const Parameter>(parameters), tied})
    for (const Parameter& parameter : some)
      if (parameter.module == base_layer) of_base.push_back(parameter.tensor);
  const Tensor base_weight = of_base.front();
  Context& context = base_weight.context();
  const ModuleScope scope(context, lora_magnitude_vector_);
  const Scoped<bool> grad(context.grad_mode, true);
  const bool is_fp16 = lora_A_.weight.dtype() == DType::float16;  // for the sake of CPUs
  const Tensor lora_A = is_fp16 ? to(lora_A_.weight, DType::float32) : lora_A_.weight;
  const Tensor lora_B = is_fp16 ? to(lora_B_.weight, DType::float32) : lora_B_.weight;
  if (gather) gather(of_base, true);
  Tensor lora_weight = matmul(lora_B, lora_A);
  if (is_fp16) lora_weight = to(lora_weight, DType::float16);
  const Tensor norm = weight_norm(base_weight, lora_weight);
  if (gather) gather(of_base, false);
  magnitude_ = detach(norm);
  magnitude_->leaf_requires_grad = true;
  context.set_role(magnitude_, Role::parameter, lora_magnitude_vector_);
  parameters.push_back({magnitude_, lora_magnitude_vector_, "weight", true});
  lora_weight.reset();
}

void DoraAdapter::cast_parameters(LastCast& param) const {
  LoraAdapter::cast_parameters(param);
  if (!is_half(magnitude_.dtype())) return;
  param = Storage(magnitude_->storage);
  cast_parameter(magnitude_, DType::float32);
}

// get_lora_weight: B and A's product by way of their forward, on an identity matrix of the layer's width.
Tensor DoraAdapter::lora_weight() const {
  const Tensor x_eye = empty(lora_A_.weight.context(), Op::eye, {in_features_, in_features_}, lora_A_.weight.dtype());
  Tensor product = lora_A_(cast_forward_input(x_eye, lora_A_.module));
  product = lora_B_(cast_forward_input(product, lora_B_.module));
  return transpose(product, 0, 1);
}

// get_weight_norm
Tensor DoraAdapter::weight_norm(const Tensor& weight, const Tensor& lora_weight) const {
  Tensor adapted;
  {
    const Tensor scaled = mul_scalar(lora_weight);
    adapted = add(weight, scaled);
  }
  const Tensor norm = linalg_vector_norm(adapted, false);
  return to(norm, adapted.dtype());
}

// DoraLinearVariant.forward
Tensor DoraAdapter::update(const Linear& base_layer, const Tensor& x_in, const Tensor& result) const {
  const bool drops = (config_.dropout > 0 || config_.dropout_is_off) && result.context().training;
  const Tensor x = dropout(x_in);
  const Tensor extra = magnitude_vector(x, base_layer, drops ? Tensor() : result);
  return add(result, extra);
}

// DoraLinearLayer.forward
Tensor DoraAdapter::magnitude_vector(const Tensor& argument, const Linear& base_layer, const Tensor& given) const {
  Context& context = argument.context();
  ModuleCall call(context, lora_magnitude_vector_);
  Tensor x = call.argument(argument);
  const auto reads = [&](const Tensor& parameter) {  // of a module that is not called then
    if (context.modules && parameter) context.modules->read(parameter);
  };
  reads(lora_A_.weight);
  Tensor product = lora_weight();
  product = to(product, x.dtype());
  reads(base_layer.weight);
  Tensor weight = to(base_layer.weight, x.dtype());
  Tensor norm = [&] {
    const Tensor detached = detach(product);
    return weight_norm(weight, detached);
  }();
  norm = detach(norm);
  Tensor mag_norm_scale = view(div(magnitude_, norm), {1, out_features_});
  Tensor lora_result = lora_A_(cast_forward_input(x, lora_A_.module));
  lora_result = lora_B_(cast_forward_input(lora_result, lora_B_.module));
  Tensor base_result = given;
  if (given) reads(base_layer.bias);
  if (!given)
    base_result = linear(x, weight, {});
  else if (base_layer.bias)
    base_result = sub(given, base_layer.bias);
  Tensor result_dora;
  {
    Tensor of_base = add_scalar(mag_norm_scale);  // mag_norm_scale - 1
    of_base = mul(of_base, base_result);
    Tensor of_lora = mul(mag_norm_scale, lora_result);
    of_lora = mul_scalar(of_lora);
    result_dora = add(of_base, of_lora);
    of_base.reset();
    of_lora.reset();
  }
  // The frame's names go in the order in which they were bound.
  x.reset();
  base_result.reset();
  product.reset();
  weight.reset();
  norm.reset();
  mag_norm_scale.reset();
  lora_result.reset();
  return call.result(std::move(result_dora));
}

}  // namespace oometer
