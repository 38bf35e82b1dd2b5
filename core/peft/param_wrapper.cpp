#include "peft/param_wrapper.h"

#include <cmath>
#include <string_view>
#include <utility>

#include "nn/quantizer.h"
#include "ops/ops.h"
#include "ops/vision.h"

namespace oometer {

ParamWrapper::ParamWrapper(const LoraModel& model, Builder& builder, const std::vector<ParameterSizes>& targets,
                           bool is_transposed)
    : model_(model), is_transposed_(is_transposed) {
  std::vector<ModuleRecord>& modules = builder.context->log.modules;
  const std::string path = module_path(builder.context->log, builder.module) + ".";
  const char* const type = modules[builder.module].type;
  std::vector<Builder> wrappers;  // the outermost first
  for (std::size_t i = 0; i < targets.size(); ++i) {
    wrappers.push_back(i == 0 ? builder : wrappers.back().child("base_layer", type));
    wrappers.back().wrapping = nullptr;
    modules[wrappers.back().module].type = "lora.ParamWrapper";
  }
  builder.module = wrappers.back().child("base_layer", type).module;
  base_layer_ = builder.module;
  for (const ParameterSizes& target : targets) {
    Builder inside = wrappers.back();
    wrappers.pop_back();
    if (inside.quantizer) inside.dtype = inside.quantizer->adapter_dtype(false, inside.dtype);
    inside.quantizer = nullptr;
    const bool has_experts = target.sizes.ndim() == 3, swaps = has_experts && !is_transposed;
    const std::int64_t num_experts = has_experts ? target.sizes[0] : 1, rank = model.rank_of(0, path + target.name);
    // _get_in_out_features: of two dimensions the first are the outputs.
    std::int64_t in_features = target.sizes[-2], out_features = target.sizes[-1];
    if (swaps || !has_experts) std::swap(in_features, out_features);
    targets_.push_back({target.name, num_experts, rank, inside.module,
                        std::make_unique<LoraAdapter>(model, 0, rank * num_experts, in_features, out_features)});
    for (int kind = 0; kind < LoraAdapter::kKinds; ++kind) targets_.back().adapter->add_modules(inside, kind);
  }
}

void ParamWrapper::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                                   const GatherParameters& gather, std::size_t) {
  for (const Target& target : targets_) target.adapter->make_parameters(parameters, tied, gather, base_layer_);
}

void ParamWrapper::cast_parameters(std::size_t, LastCast& param) const {
  for (const Target& target : targets_) target.adapter->cast_parameters(param);
}

/// _activate_lora, of one wrapper within another.
class ParamWrapper::ParametrizedCall : public ParametersWrapper::Call {
 public:
  ParametrizedCall(const ParamWrapper& wrapper, std::span<const NamedParameter> parameters) : wrapper_(wrapper) {
    proxies_.reserve(wrapper.targets_.size());
    for (std::size_t i = wrapper.targets_.size(); i-- > 0;) {  // the outermost wrapper is called first
      const Target& target = wrapper.targets_[i];
      for (const NamedParameter& parameter : parameters)
        if (target.name == std::string_view(parameter.name)) register_parametrization(target, parameter.tensor);
    }
  }
  ~ParametrizedCall() override {
    while (!proxies_.empty()) {
      if (proxies_.size() == 1) cached_.clear();  // before the outermost parametrization is removed
      proxies_.pop_back();
    }
  }
  ParametrizedCall(const ParametrizedCall&) = delete;
  ParametrizedCall& operator=(const ParametrizedCall&) = delete;

  Tensor operator()(const char* name, const Tensor& parameter) override {
    for (const auto& [cached, value] : cached_)
      if (cached == std::string_view(name)) return value;
    for (const Proxy& proxy : proxies_) {
      if (proxy.target->name != std::string_view(name)) continue;
      cached_.emplace_back(name, weight(proxy, parameter));
      return cached_.back().second;
    }
    return parameter;
  }

 private:
  /// _LoraFactorsProxy, or for a single matrix _LoraParameterProxy.
  struct Proxy {
    const Target* target;
    Tensor lhs, rhs, delta_weight;
  };

  void register_parametrization(const Target& target, const Tensor& parameter) {
    const ModuleScope scope(parameter.context(), target.module);
    proxies_.push_back(target.num_experts > 1 ? delta_factors(target, parameter) : delta_weight(target, parameter));
    const Tensor checked = weight(proxies_.back(), parameter);  // ParametrizationList's consistency checks
  }

  Proxy delta_factors(const Target& target, const Tensor& parameter) const {
    const Tensor &A = target.adapter->lora_A(), &B = target.adapter->lora_B();
    const Tensor weight_A = reshape(A, {target.num_experts, target.rank, A.size(1)});
    const Tensor weight_B = permute(reshape(B, {B.size(0), target.rank, target.num_experts}), {2, 0, 1});
    const DType dtype = parameter.dtype();
    Proxy proxy{&target, {}, {}, {}};
    proxy.lhs = to(wrapper_.is_transposed_ ? transpose(weight_A, 1, 2) : weight_B, dtype);
    proxy.rhs = to(wrapper_.is_transposed_ ? transpose(weight_B, 1, 2) : weight_A, dtype);
    return proxy;
  }

  static Proxy delta_weight(const Target& target, const Tensor& parameter) {
    Tensor delta = matmul(target.adapter->lora_B(), target.adapter->lora_A());
    delta = mul_scalar(delta);
    return {&target, {}, {}, to(delta, parameter.dtype())};
  }

  Tensor weight(const Proxy& proxy, const Tensor& parameter) const {
    Context& context = parameter.context();
    const ModuleScope scope(context, proxy.target->module);
    if (proxy.delta_weight) return add(parameter, proxy.delta_weight);
    const Scoped<bool> autocast(context.autocast.enabled, false);
    return baddbmm(parameter, proxy.lhs, proxy.rhs, wrapper_.scales(*proxy.target));
  }

  const ParamWrapper& wrapper_;
  std::vector<Proxy> proxies_;
  std::vector<std::pair<const char*, Tensor>> cached_;
};

/// Whether the scale is other than 1: a gradient is multiplied then. A rank of its own, which a parameter that was two
/// layers has, comes with an alpha as many times larger.
bool ParamWrapper::scales(const Target& target) const {
  const LoraConfig& config = *model_.adapter(0).config;
  const auto rank = static_cast<double>(target.rank);
  const double alpha = config.alpha * rank / static_cast<double>(config.rank);
  return alpha != (config.use_rslora ? std::sqrt(rank) : rank);
}

std::unique_ptr<ParametersWrapper::Call> ParamWrapper::call(std::span<const NamedParameter> parameters) const {
  if (!parameters.empty() && parameters.front().tensor.context().adapters_disabled) return nullptr;
  return std::make_unique<ParametrizedCall>(*this, parameters);
}

}  // namespace oometer
