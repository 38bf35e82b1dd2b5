#include "nn/quantizer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "nn/components.h"
#include "nn/output_embeddings.h"
#include "ops/ops.h"

namespace oometer {

namespace {

/// should_convert_module, for names: at the path's beginning up to a dot, or at its end.
bool skips(std::string_view path, std::string_view name) {
  if (path.ends_with(name)) return true;
  return path.starts_with(name) && (path.size() == name.size() || path[name.size()] == '.');
}

/// dot_natural_key (core_model_loading.py): parts between dots, numbers by their value.
bool comes_before(std::string_view a, std::string_view b) {
  const auto next = [](std::string_view& rest) {
    const std::size_t end = std::min(rest.find('.'), rest.size());
    const std::string_view part = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return part;
  };
  const auto is_number = [](std::string_view part) {
    return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
  };
  while (!a.empty() && !b.empty()) {
    const std::string_view x = next(a), y = next(b);
    if (x == y) continue;
    if (is_number(x) && is_number(y) && x.size() != y.size()) return x.size() < y.size();
    return x < y;
  }
  return a.empty() && !b.empty();
}

}  // namespace

std::shared_ptr<const QuantState> Quantizer::quantize(const Builder& builder, const Shape& shape) {
  // replace_with_bnb_linear: no class derived from nn.Linear, as that of nn.MultiheadAttention's out_proj.
  const ModuleRecord& record = context_.log.modules[builder.module];
  const std::string_view type = record.type;
  if (type != "Linear" && type != "Conv1D") return nullptr;
  const std::string path = module_path(context_.log, builder.module);
  if (record.name == std::string_view("wo") &&
      std::string_view(context_.log.modules[record.parent].type).starts_with("T5Dense"))
    return nullptr;  // T5PreTrainedModel._keep_in_fp32_modules
  if (config_.skip_modules) {
    for (const std::string& name : *config_.skip_modules)
      if (skips(path, name)) return nullptr;
  } else {  // get_keys_to_not_convert: the layer alone, not what stands beside it in a head (lm_head.dense)
    const bool is_at_top = context_.log.is_root(record.parent);
    if (path == "text_projection") return nullptr;  // of CLIPModel, whose last parameter that is
    for (const std::string_view name : kOutputEmbeddings)
      if (path.ends_with(name) && is_output_embeddings(name, is_at_top)) return nullptr;
  }
  const auto state = std::make_shared<QuantState>();
  state->shape = shape;
  state->dtype = builder.dtype;
  state->compute_dtype = config_.compute_dtype;
  state->nested = config_.double_quant;
  states_.push_back(state);
  modules_.emplace_back(builder.module, state.get());
  return state;
}

std::optional<Error> Quantizer::check_skipped() const {
  if (!config_.skip_modules) return std::nullopt;
  return check_names(
      context_.log, kModel, *config_.skip_modules, "/training/quantization/llm_int8_skip_modules",
      [&](ModuleId module, const std::string& name) { return skips(module_path(context_.log, module), name); });
}

DType Quantizer::adapter_dtype(bool is_quantized, DType dtype) const {
  if (is_quantized) return config_.compute_dtype;  // BaseTunerLayer._get_base_layer_device_and_dtype
  return config_.prepares ? DType::float32 : dtype;
}

/// Bnb4bitParametrization (nn/parametrize.py), computed when it is asked for and kept until the module has returned
/// (_enable_parametrization_cache).
class DequantizedExperts : public ParametersWrapper {
 public:
  DequantizedExperts(ModuleId module, std::vector<std::pair<const char*, std::shared_ptr<const QuantState>>> states)
      : module_(module), states_(std::move(states)) {}

  std::unique_ptr<Call> call(std::span<const NamedParameter>) const override { return std::make_unique<Cache>(*this); }

 private:
  class Cache : public Call {
   public:
    explicit Cache(const DequantizedExperts& experts) : experts_(experts) {}
    Tensor operator()(const char* name, const Tensor& parameter) override {
      for (const auto& [cached, value] : cached_)
        if (cached == std::string_view(name)) return value;
      for (const auto& [quantized, state] : experts_.states_) {
        if (quantized != std::string_view(name)) continue;
        const NoGrad no_grad(parameter.context());
        const ModuleScope scope(parameter.context(), experts_.module_);
        cached_.emplace_back(name, dequantize_4bit(parameter.context(), *state));
        return cached_.back().second;
      }
      return parameter;
    }

   private:
    const DequantizedExperts& experts_;
    std::vector<std::pair<const char*, Tensor>> cached_;
  };

  ModuleId module_;
  std::vector<std::pair<const char*, std::shared_ptr<const QuantState>>> states_;
};

std::shared_ptr<const ParametersWrapper> Quantizer::quantize_experts(
    const Builder& at, std::span<const ParameterSizes> parameters, std::shared_ptr<const ParametersWrapper> adapters) {
  if (!config_.moe_experts || module_path(context_.log, at.module).find("expert") == std::string::npos) return adapters;
  std::vector<std::pair<const char*, std::shared_ptr<const QuantState>>> states;
  for (const ParameterSizes& parameter : parameters) {
    const auto state = std::make_shared<QuantState>();
    state->shape = parameter.sizes;
    state->dtype = at.dtype;
    state->nested = true;
    experts_.push_back({at.module, parameter.name, state});
    states.emplace_back(parameter.name, state);
  }
  return std::make_shared<DequantizedExperts>(at.module, std::move(states));
}

bool Quantizer::is_of_experts(const Parameter& parameter) const {
  return config_.moe_experts && parameter.tensor.sizes().ndim() >= 3 &&
         (module_path(context_.log, parameter.module) + "." + parameter.name).find("expert") != std::string::npos;
}

std::optional<Error> Quantizer::check_experts(const std::vector<Parameter>& parameters) const {
  for (const Parameter& parameter : parameters)
    if (is_of_experts(parameter) && !state_of(parameter))
      return Error{"not-modelled", "/training/quantization/quantize_moe_experts",
                   "found " + module_path(context_.log, parameter.module) + "." + parameter.name +
                       ", experts of a class that is not supported yet with it: leave it out"};
  return std::nullopt;
}

QuantState* Quantizer::state_of(const Parameter& parameter) const {
  for (const QuantizedExperts& experts : experts_)
    if (experts.module == parameter.module && experts.name == std::string_view(parameter.name))
      return experts.state.get();
  if (parameter.name != std::string_view("weight")) return nullptr;
  const auto found = std::find_if(modules_.begin(), modules_.end(),
                                  [&](const auto& entry) { return entry.first == parameter.module; });
  if (found != modules_.end()) return found->second;
  const ModuleRecord& record = context_.log.modules[parameter.module];
  if (record.type != std::string_view("Linear4bit")) return nullptr;
  const auto above =
      std::find_if(modules_.begin(), modules_.end(), [&](const auto& entry) { return entry.first == record.parent; });
  return above == modules_.end() ? nullptr : above->second;
}

// functional.py, quantize_4bit and quantize_blockwise.
Tensor Quantizer::pack(const Tensor& weight, QuantState& state, DType storage) {
  const std::int64_t elements = weight.numel();
  const auto constant = [&](Op op, const Shape& sizes, DType dtype) {
    return empty(context_, op, sizes, dtype, Role::parameter);
  };
  Tensor absmax = constant(Op::empty, {state.blocks()}, DType::float32);
  const std::int64_t packed_elements = (elements + 1) / (2 * element_size(storage));
  // Flat there as well; here the first dimension is still that of the experts.
  const bool has_experts = state.shape.ndim() == 3 && packed_elements % state.shape[0] == 0;
  const Shape sizes = has_experts ? Shape{state.shape[0], packed_elements / state.shape[0]} : Shape{packed_elements, 1};
  Tensor packed = constant(Op::empty, sizes, storage);
  state.code = constant(Op::to_copy, {16}, DType::float32);
  {
    const Tensor absolute = empty_like(Op::abs, state.code);
    const Tensor largest = empty(context_, Op::max, {}, DType::float32);
  }
  if (state.nested) {
    state.offset = constant(Op::mean, {}, DType::float32);
    const Tensor shifted = empty_like(Op::sub, absmax);
    if (!dynamic_map_) dynamic_map_ = constant(Op::to_copy, {256}, DType::float32);
    const std::int64_t nested_blocks = (state.blocks() + QuantState::kNestedBlock - 1) / QuantState::kNestedBlock;
    state.nested_absmax = constant(Op::empty, {nested_blocks}, DType::float32);
    state.absmax = constant(Op::empty, {state.blocks()}, DType::uint8);
    state.nested_code = constant(Op::to_copy, {256}, DType::float32);
  } else {
    state.absmax = std::move(absmax);
  }
  return packed;
}

const Quantizer::MergedParameter* Quantizer::merged(const Parameter& parameter) const {
  const auto found = std::find_if(merged_.begin(), merged_.end(), [&](const MergedParameter& one) {
    return one.module == parameter.module && one.name == parameter.name;
  });
  return found == merged_.end() ? nullptr : &*found;
}

// The checkpoint knows nothing of peft's base_layer, and has LLaVA-NeXT's image_newline at its root
// (conversion_mapping.py). What is merged comes when the first of its own does.
std::string Quantizer::key_of(const Parameter& parameter) const {
  if (parameter.name == std::string_view("image_newline")) return parameter.name;
  ModuleId module = parameter.module;
  while (context_.log.modules[module].name == std::string_view("base_layer"))
    module = context_.log.modules[module].parent;
  std::string path = module_path(context_.log, module);
  for (const auto& [renamed, name] : renamed_) {
    const std::string own = module_path(context_.log, renamed);
    if (path == own || path.starts_with(own + "."))
      path = own.substr(0, own.rfind('.') + 1) + name + path.substr(own.size());
  }
  const MergedParameter* const its = merged(parameter);
  if (!its) return path + "." + parameter.name;
  const auto first = std::min_element(its->projections.begin(), its->projections.end(),
                                      [](std::string_view a, std::string_view b) { return a < b; });
  return path + ".0." + *first + ".weight";
}

// WeightConverter.convert: what an operation got goes when it has its result.
Tensor Quantizer::merge(const Tensor& parameter, const MergedParameter& of) const {
  const Shape sizes = parameter.sizes();
  const auto parts = static_cast<std::int64_t>(of.projections.size()), out = sizes[1] / parts;
  const auto made = [&](Op op, const Shape& shape, Role role = Role::tensor) {
    return empty(context_, op, shape, parameter.dtype(), role);
  };
  std::vector<std::vector<Tensor>> experts(of.projections.size());
  for (std::vector<Tensor>& projections : experts)
    for (std::int64_t i = 0; i < sizes[0]; ++i) projections.push_back(made(Op::to_copy, {out, sizes[2]}));
  std::vector<Tensor> stacked;  // MergeModulelist
  for (std::vector<Tensor>& projections : experts) {
    stacked.push_back(made(Op::cat, {sizes[0], out, sizes[2]}, parts == 1 ? Role::parameter : Role::tensor));
    while (!projections.empty()) projections.pop_back();
  }
  return parts == 1 ? stacked.front() : made(Op::cat, sizes, Role::parameter);  // Concatenate
}

std::int64_t Quantizer::elements_of(const Parameter& parameter) const {
  const QuantState* const state = state_of(parameter);
  return state ? numel(state->shape) : parameter.tensor.numel();
}

void Quantizer::load(std::vector<Parameter>& parameters, const std::vector<Buffer>& buffers) {
  const NoGrad no_grad(context_);
  std::int64_t bytes = 0;
  for (const Parameter& parameter : parameters)
    bytes += is_quantized(parameter) ? parameter.tensor.numel() / 2 : parameter.tensor.nbytes();
  // caching_allocator_warmup, which Axolotl takes out with experts
  if (!config_.moe_experts) {
    const Workspace warmup(context_, Op::empty, bytes);
  }
  std::vector<std::pair<std::string, const Parameter*>> order;
  order.reserve(parameters.size());
  for (const Parameter& parameter : parameters) {
    order.emplace_back(key_of(parameter), &parameter);
  }
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return comes_before(a.first, b.first); });
  std::vector<Tensor> loaded;  // by the threads, which are ahead
  loaded.reserve(order.size());
  const auto ahead =
      static_cast<std::size_t>(config_.moe_experts ? 0 : weights_loaded_ahead_);  // nor are there threads
  for (std::size_t i = 0; i < order.size(); ++i) {
    while (loaded.size() < std::min(order.size(), i + 1 + ahead)) {
      const Parameter& next = *order[loaded.size()].second;
      const ModuleScope scope(context_, next.module);
      const MergedParameter* const its = merged(next);
      loaded.push_back(its ? merge(next.tensor, *its)
                           : empty(context_, Op::to_copy, next.tensor.sizes(), next.tensor.dtype(),
                                   is_quantized(next) ? Role::tensor : Role::parameter));
    }
    const Parameter* parameter = order[i].second;
    const ModuleScope scope(context_, parameter->module);
    const Tensor& tensor = parameter->tensor;
    QuantState* state = state_of(*parameter);
    const bool of_experts = state && is_of_experts(*parameter);
    {
      // Params4bit._quantize: self.data.contiguous(), of a Conv1D's weight, which is [in, out]
      const bool is_turned = state && context_.log.modules[parameter->module].type == std::string_view("Conv1D");
      const Tensor turned = is_turned ? empty_like(Op::clone, loaded[i]) : Tensor();
      replace_data(tensor,
                   state ? pack(loaded[i], *state, of_experts ? DType::uint8 : config_.quant_storage) : loaded[i]);
    }
    loaded[i].reset();
    if (of_experts) context_.empty_cache();
    if (state) tensor->leaf_requires_grad = false;
  }
  for (const Buffer& buffer : buffers) {
    const DType dtype = buffer.is_kept_in_float32 ? DType::float32 : buffer.tensor.dtype();
    replace_data(buffer.tensor, empty(context_, Op::empty, buffer.tensor.sizes(), dtype, Role::buffer));
  }
  if (!config_.prepares) return;
  for (const Parameter& parameter : parameters)
    if (is_half(parameter.tensor.dtype()) && !is_quantized(parameter)) cast_parameter(parameter.tensor, DType::float32);
  context_.empty_cache();
}

}  // namespace oometer
