#include "peft/ia3.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "ops/ops.h"

namespace oometer {

Ia3Linear::Ia3Linear(bool is_feedforward, Builder& builder, std::int64_t in_features, std::int64_t out_features)
    : sizes_(is_feedforward ? Shape{1, in_features} : Shape{out_features, 1}),
      is_feedforward_(is_feedforward),
      module_(builder.module) {
  Builder inside = builder;
  inside.wrapping = nullptr;
  inside.context->log.modules[module_].type = "ia3.Linear";
  builder = inside.child("base_layer", "Linear");
  ia3_l_builder_ = inside.child("ia3_l", "ParameterDict");
}

void Ia3Linear::make_parameters(std::vector<Parameter>& parameters) {
  ia3_l_builder_.parameters = &parameters;
  ia3_l_ = ia3_l_builder_.parameter("default", sizes_);
}

void Ia3Linear::cast_parameters() const {
  if (is_half(ia3_l_.dtype())) cast_parameter(ia3_l_, DType::float32);
}

// ia3.Linear.forward
Tensor Ia3Linear::operator()(const Linear& base_layer, const Tensor& x_in) const {
  Context& context = x_in.context();
  ModuleCall call(context, module_);
  const Tensor argument = call.argument(x_in);
  if (context.adapters_disabled) return call.result(base_layer.forward(argument));
  if (context.modules) context.modules->read(ia3_l_);               // the ParameterDict that has it is not called
  Tensor ia3_scaling = mul_scalar(view(ia3_l_, {ia3_l_.numel()}));  // 1 * ia3_l.flatten()
  const auto scaled = [&](const Tensor& x, DType dtype) {
    const Tensor product = mul(x, ia3_scaling);
    return to(product, dtype);
  };
  if (is_feedforward_) {
    Tensor x = to(argument, ia3_l_.dtype());
    Tensor interm = scaled(x, x_in.dtype());
    Tensor result = base_layer.forward(interm);
    x.reset();  // the frame's names go in the order in which they were bound
    ia3_scaling.reset();
    interm.reset();
    return call.result(std::move(result));
  }
  Tensor result = base_layer.forward(argument);
  result = scaled(result, result.dtype());
  ia3_scaling.reset();
  return call.result(std::move(result));
}

Ia3Model::Ia3Model(Context& context, const Ia3Config& config, std::string kind)
    : Tuner(context, std::move(kind), config.target_modules, config.modules_to_save), config_(config) {
  if (config.feedforward_modules.pattern.empty()) return;
  if (Result<Pattern> pattern = Pattern::parse(config.feedforward_modules.pattern)) feedforward_ = *std::move(pattern);
}

/// _check_target_module_feedforward: by the end of the path, or all of it.
bool Ia3Model::is_feedforward(ModuleId module) const {
  const std::string path = module_path(context_.log, module);
  if (feedforward_) return feedforward_->matches(path);
  const std::vector<std::string>& names = config_.feedforward_modules.names;
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return std::string_view(path).ends_with(name); });
}

std::shared_ptr<const LinearWrapper> Ia3Model::create(Builder& builder, std::int64_t in_features,
                                                      std::int64_t out_features) {
  layers_.push_back(std::make_shared<Ia3Linear>(is_feedforward(builder.module), builder, in_features, out_features));
  return layers_.back();
}

void Ia3Model::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>, std::size_t) {
  for (const std::shared_ptr<Ia3Linear>& layer : layers_) layer->make_parameters(parameters);
}

void Ia3Model::cast_parameters(std::size_t) {
  if (!config_.autocast_adapter_dtype || !context_.behaviours.peft_casts_adapters) return;
  for (const std::shared_ptr<Ia3Linear>& layer : layers_) layer->cast_parameters();
}

}  // namespace oometer
