#include "peft/lora.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ops/ops.h"
#include "peft/dora.h"

namespace oometer {

LoraLinear::LoraLinear(const LoraConfig& config, Builder& builder, std::int64_t in_features, std::int64_t out_features)
    : config_(config), in_features_(in_features), out_features_(out_features), module_(builder.module) {
  Builder inside = builder;
  inside.wrapping = nullptr;
  inside.quantizer = nullptr;
  inside.context->log.modules[module_].type = "lora.Linear";
  builder = inside.child("base_layer", "Linear");
  base_layer_ = builder.module;
  lora_dropout_ = inside.child("lora_dropout.default", config.dropout > 0 ? "Dropout" : "Identity").module;
  lora_a_ = inside.child("lora_A.default", "Linear");
  lora_b_ = inside.child("lora_B.default", "Linear");
}

void LoraLinear::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>,
                                 const GatherParameters&) {
  lora_a_.parameters = lora_b_.parameters = &parameters;
  lora_A_ = Linear(lora_a_, in_features_, config_.rank, false);
  lora_B_ = Linear(lora_b_, config_.rank, out_features_, config_.lora_bias);
}

void LoraLinear::cast_parameters() const {
  if (!is_half(lora_A_.weight.dtype())) return;
  cast_parameter(lora_A_.weight, DType::float32);
  // The list of a module's parameters keeps the old ones until all of them are cast.
  const Storage bias = lora_B_.bias ? Storage(lora_B_.bias->storage) : Storage();
  const Storage weight(lora_B_.weight->storage);
  cast_parameter(lora_B_.weight, DType::float32);
  if (lora_B_.bias) cast_parameter(lora_B_.bias, DType::float32);
}

Tensor LoraLinear::dropout(const Tensor& x) const {
  ModuleCall call(x.context(), lora_dropout_);
  return call.result(oometer::dropout(call.argument(x), config_.dropout));
}

// _cast_input_dtype; counted as the adapter's, whose copy it is.
Tensor LoraLinear::input(const Tensor& x) const {
  Context& context = x.context();
  if (context.modules) context.modules->read(lora_A_.weight);
  const ModuleScope scope(context, lora_dropout_);
  return to(x, lora_A_.weight.dtype());
}

// result + lora_B(lora_A(dropout(x))) * scaling
Tensor LoraLinear::update(const Linear&, const Tensor& x, const Tensor& result) const {
  Tensor added = dropout(x);
  added = lora_A_(added);
  added = lora_B_(added);
  added = mul_scalar(added);
  return add(result, added);
}

// lora.Linear.forward
Tensor LoraLinear::operator()(const Linear& base_layer, const Tensor& x_in) const {
  ModuleCall call(x_in.context(), module_);
  const Tensor argument = call.argument(x_in);
  Tensor result = base_layer.forward(argument);
  const DType result_dtype = result.dtype();
  if (base_layer.quantized) {  // tuners/lora/bnb.py, Linear4bit.forward
    result = clone(result);
    const bool converts = !x_in.context().autocast.enabled;
    const Tensor x = converts ? input(x_in) : x_in;
    Tensor output = dropout(x);
    output = lora_A_(output);
    output = lora_B_(output);
    output = mul_scalar(output);
    if (converts) output = to(output, result_dtype);
    result = add(result, output);
    return result;
  }
  const Tensor x = input(argument);  // bound until forward returns
  result = update(base_layer, x, result);
  result = to(result, result_dtype);
  return call.result(result);
}

std::shared_ptr<const LinearWrapper> LoraModel::create(Builder& builder, std::int64_t in_features,
                                                       std::int64_t out_features) {
  if (config_.use_dora)
    layers_.push_back(std::make_shared<DoraLinear>(config_, builder, in_features, out_features));
  else
    layers_.push_back(std::make_shared<LoraLinear>(config_, builder, in_features, out_features));
  return layers_.back();
}

void LoraModel::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied) {
  // _mark_only_adapters_as_trainable
  for (Parameter& parameter : parameters) {
    const auto is_base = [&](const std::shared_ptr<LoraLinear>& layer) {
      return layer->base_layer() == parameter.module;
    };
    if (config_.bias == LoraBias::none || parameter.name != std::string_view("bias")) continue;
    parameter.tensor->leaf_requires_grad =
        config_.bias == LoraBias::all || std::any_of(layers_.begin(), layers_.end(), is_base);
  }
  for (const std::shared_ptr<LoraLinear>& layer : layers_) layer->make_parameters(parameters, tied, gather_);
}

void LoraModel::cast_parameters() {
  if (!config_.autocast_adapter_dtype || !context_.behaviours.peft_casts_adapters) return;
  for (const std::shared_ptr<LoraLinear>& layer : layers_) layer->cast_parameters();
}

}  // namespace oometer
