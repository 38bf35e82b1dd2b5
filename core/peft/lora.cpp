#include "peft/lora.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "config/reader.h"
#include "ops/ops.h"
#include "peft/dora.h"
#include "peft/lora_kernels.h"
#include "peft/param_wrapper.h"
#include "peft/targets.h"

namespace oometer {

namespace {

constexpr const char* kKindNames[LoraAdapter::kKinds] = {"lora_dropout", "lora_A", "lora_B", "lora_magnitude_vector"};

}  // namespace

// --- an adapter of a Linear ------------------------------------------------------------------------------------------

LoraAdapter::LoraAdapter(const LoraModel& model, std::size_t adapter, std::int64_t rank, std::int64_t in_features,
                         std::int64_t out_features)
    : model_(model),
      config_(*model.adapter(adapter).config),
      adapter_(adapter),
      rank_(rank),
      in_features_(in_features),
      out_features_(out_features) {}

void LoraAdapter::add_modules(const Builder& layer, int kind) {
  const char* const name = model_.name_of(adapter_, kind);
  if (kind == 0)
    lora_dropout_ = layer.child(name, config_.dropout > 0 || config_.dropout_is_off ? "Dropout" : "Identity").module;
  if (kind == 1) lora_a_ = layer.child(name, "Linear");
  if (kind == 2) lora_b_ = layer.child(name, "Linear");
}

void LoraAdapter::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>,
                                  const GatherParameters&, ModuleId) {
  lora_a_.parameters = lora_b_.parameters = &parameters;
  lora_A_ = Linear(lora_a_, in_features_, rank_, false);
  lora_B_ = Linear(lora_b_, rank_, out_features_, config_.lora_bias);
}

void LoraAdapter::cast_parameters(LastCast& param) const {
  if (!is_half(lora_A_.weight.dtype())) return;
  param = Storage(lora_A_.weight->storage);
  cast_parameter(lora_A_.weight, DType::float32);
  // The list of a module's parameters keeps the old ones until all of them are cast.
  param = Storage(lora_B_.weight->storage);
  const Storage weight = param;
  cast_parameter(lora_B_.weight, DType::float32);
  if (!lora_B_.bias) return;
  param = Storage(lora_B_.bias->storage);
  cast_parameter(lora_B_.bias, DType::float32);
}

Tensor LoraAdapter::dropout(const Tensor& x) const {
  ModuleCall call(x.context(), lora_dropout_);
  return call.result(oometer::dropout(call.argument(x), config_.dropout));
}

// Counted as the adapter's, whose copy it is.
Tensor LoraAdapter::input(const Tensor& x) const {
  Context& context = x.context();
  if (context.modules) context.modules->read(lora_A_.weight);
  const ModuleScope scope(context, lora_dropout_);
  return to(x, lora_A_.weight.dtype());
}

// lora_B(lora_A(dropout(x))) * scaling
Tensor LoraAdapter::output(const Tensor& x) const {
  Tensor added = dropout(x);
  added = lora_A_(cast_forward_input(added, lora_A_.module));
  added = lora_B_(cast_forward_input(added, lora_B_.module));
  return mul_scalar(added);
}

Tensor LoraAdapter::update(const Linear&, const Tensor& x, const Tensor& result) const {
  const Tensor added = output(x);
  return add(result, added);
}

// --- lora.Linear -----------------------------------------------------------------------------------------------------

namespace {

/// Whether it lies in the self_attn or mlp of a layer of the text model (axolotl 0.19, monkeypatch/lora_kernels.py:
/// get_layers): model.layers.N, language_model.layers.N.
bool is_in_text_layer(const Log& log, ModuleId module) {
  const ModuleRecord& part = log.modules[log.modules[module].parent];
  const ModuleRecord& layer = log.modules[part.parent];
  const std::string_view name = part.name, stack = log.modules[layer.parent].name;
  return (name == "self_attn" || name == "mlp") && layer.index >= 0 && layer.name == std::string_view("layers") &&
         (stack == "model" || stack == "language_model");
}

}  // namespace

LoraLinear::LoraLinear(const LoraModel& model, Builder& builder, std::int64_t in_features, std::int64_t out_features)
    : model_(model),
      module_(builder.module),
      is_in_text_layer_(is_in_text_layer(builder.context->log, builder.module)),
      is_o_proj_(builder.context->log.modules[builder.module].name == std::string_view("o_proj")) {
  Builder inside = builder;
  inside.wrapping = nullptr;
  inside.quantizer = nullptr;
  const bool is_conv_1d = inside.context->log.modules[module_].type == std::string_view("Conv1D");
  inside.context->log.modules[module_].type = "lora.Linear";
  builder = inside.child("base_layer", is_conv_1d ? "Conv1D" : "Linear");
  base_layer_ = builder.module;
  for (std::size_t i = 0; i < model.adapters(); ++i) {
    const std::int64_t rank = model.rank_of(i, module_);
    if (model.adapter(i).config->use_dora)
      adapters_.push_back(std::make_unique<DoraAdapter>(model, i, rank, in_features, out_features));
    else
      adapters_.push_back(std::make_unique<LoraAdapter>(model, i, rank, in_features, out_features));
  }
  for (int kind = 0; kind < LoraAdapter::kKinds; ++kind)
    for (const std::unique_ptr<LoraAdapter>& adapter : adapters_) adapter->add_modules(inside, kind);
}

void LoraLinear::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                                 const GatherParameters& gather, std::size_t adapter) {
  adapters_[adapter]->make_parameters(parameters, tied, gather, base_layer_);
}

void LoraLinear::cast_parameters(std::size_t adapter, LastCast& param) const {
  adapters_[adapter]->cast_parameters(param);
}

namespace {

bool has_adapter(const Linear* layer) { return layer->wrapper && layer->wrapper->as_lora(); }

}  // namespace

bool LoraLinear::project(const Tensor& x, std::span<const Linear* const> layers, std::span<Tensor> results) const {
  if (!is_in_text_layer_ || !adapter().config().lora_qkv_kernel ||
      !std::all_of(layers.begin(), layers.end(), has_adapter))
    return false;
  lora_qkv(x, layers, results);
  return true;
}

Tensor LoraLinear::gated_mlp(const Tensor& x, const Linear& gate_proj, const Linear& up_proj,
                             const Linear& down_proj) const {
  if (model_.function != LoraFunction::peft)
    return model_.function >= LoraFunction::automodel_mlp && has_adapter(&up_proj) && has_adapter(&down_proj) &&
                   !gate_proj.quantized && !gate_proj.bias
               ? automodel_lora_mlp(x, gate_proj, up_proj, down_proj)
               : Tensor();
  if (!is_in_text_layer_ || !adapter().config().lora_mlp_kernel || !has_adapter(&up_proj) || !has_adapter(&down_proj))
    return {};
  return lora_mlp(x, gate_proj, up_proj, down_proj);
}

Tensor LoraLinear::run_automodels(const Linear& base_layer, const Tensor& x_in) const {
  ModuleCall call(x_in.context(), module_);
  const Tensor x = call.argument(x_in), result = base_layer.forward(x);
  return call.result(automodel_lora(
      x, base_layer, result,
      model_.function == LoraFunction::automodel_triton || model_.function == LoraFunction::automodel_triton_mlp));
}

// lora.Linear.forward
Tensor LoraLinear::operator()(const Linear& base_layer, const Tensor& x_in) const {
  if (model_.function != LoraFunction::peft) return run_automodels(base_layer, x_in);
  if (is_o_proj_ && is_in_text_layer_ && !x_in.context().adapters_disabled && adapter().config().lora_o_kernel)
    return lora_o(x_in, base_layer);
  ModuleCall call(x_in.context(), module_);
  const Tensor argument = call.argument(x_in);
  Tensor result = base_layer.forward(argument);
  if (x_in.context().adapters_disabled) return call.result(std::move(result));
  const DType result_dtype = result.dtype();
  if (base_layer.quantized) {  // tuners/lora/bnb.py, Linear4bit.forward
    const LoraAdapter& adapter = *adapters_.front();
    result = clone(result);
    const bool converts = !x_in.context().autocast.enabled;
    const Tensor x = converts ? adapter.input(x_in) : x_in;
    Tensor output = adapter.output(x);
    if (converts) output = to(output, result_dtype);
    result = add(result, output);
    return result;
  }
  Tensor x = argument;  // bound until forward returns
  for (const std::unique_ptr<LoraAdapter>& adapter : adapters_) {
    if (!model_.adapter(adapter->adapter()).active) continue;
    x = adapter->input(x);
    result = adapter->update(base_layer, x, result);
  }
  result = to(result, result_dtype);
  return call.result(result);
}

// --- lora.Embedding --------------------------------------------------------------------------------------------------

LoraEmbedding::LoraEmbedding(const LoraModel& model, Builder& builder, std::int64_t count, std::int64_t size)
    : model_(model), count_(count), size_(size), module_(builder.module) {
  Builder inside = builder;
  inside.wrapping = nullptr;
  inside.context->log.modules[module_].type = "lora.Embedding";
  builder = inside.child("base_layer", "Embedding");
  base_layer_ = builder.module;
  lora_embedding_a_ = inside.child("lora_embedding_A", "ParameterDict");
  lora_embedding_b_ = inside.child("lora_embedding_B", "ParameterDict");
  for (std::size_t i = 0; i < model.adapters(); ++i) adapters_.push_back({model.rank_of(i, module_), {}, {}});
}

void LoraEmbedding::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter>,
                                    const GatherParameters&, std::size_t adapter) {
  Adapter& own = adapters_[adapter];
  lora_embedding_a_.parameters = lora_embedding_b_.parameters = &parameters;
  own.lora_embedding_A = lora_embedding_a_.parameter("default", {own.rank, count_});
  own.lora_embedding_B = lora_embedding_b_.parameter("default", {size_, own.rank});
}

void LoraEmbedding::cast_parameters(std::size_t adapter, LastCast&) const {
  cast_half(adapters_[adapter].lora_embedding_A);
  cast_half(adapters_[adapter].lora_embedding_B);
}

// lora.Embedding.forward
Tensor LoraEmbedding::operator()(const Embedding& base_layer, const Tensor& indices, const ForwardHook& hook) const {
  const ModuleScope scope(indices.context(), module_);
  Tensor result = base_layer.forward(indices, hook);
  if (indices.context().adapters_disabled) return result;
  const DType result_dtype = result.dtype();
  Tensor after_A, adapter_output;  // bound until forward returns
  for (std::size_t i = 0; i < adapters_.size(); ++i) {
    if (!model_.adapter(i).active) continue;
    const ModuleScope inside(indices.context(), lora_embedding_a_.module);
    const Tensor embedding_A = transpose(adapters_[i].lora_embedding_A, 0, 1);
    const Tensor embedding_B = transpose(adapters_[i].lora_embedding_B, 0, 1);
    after_A = embedding(embedding_A, indices);
    adapter_output = matmul(after_A, embedding_B);
    adapter_output = mul_scalar(adapter_output);
    result = add(result, adapter_output);
  }
  result = to(result, result_dtype);
  after_A.reset();  // the frame's names go in the order in which they were bound
  adapter_output.reset();
  return result;
}

// --- LoraModel -------------------------------------------------------------------------------------------------------

LoraModel::LoraModel(Context& context, std::string kind, std::vector<Adapter> adapters)
    : Tuner(context, std::move(kind), adapters.front().config->target_modules,
            adapters.front().config->modules_to_save),
      adapters_(std::move(adapters)) {
  std::vector<std::string> names;
  for (const Adapter& adapter : adapters_) {
    for (const char* name : kKindNames) names.push_back(std::string(name) + "." + adapter.name);
    rank_patterns_.emplace_back(adapter.config->rank_pattern);
  }
  names_ = std::make_shared<const std::vector<std::string>>(std::move(names));
  if (context.log.names == nullptr) context.log.names = names_;
}

const char* LoraModel::name_of(std::size_t adapter, int kind) const {
  return (*names_)[adapter * LoraAdapter::kKinds + static_cast<std::size_t>(kind)].c_str();
}

std::int64_t LoraModel::rank_of(std::size_t adapter, ModuleId module) const {
  return rank_patterns_[adapter].empty() ? adapters_[adapter].config->rank
                                         : rank_of(adapter, module_path(context_.log, module));
}

std::int64_t LoraModel::rank_of(std::size_t adapter, const std::string& path) const {
  return rank_patterns_[adapter].of(path, adapters_[adapter].config->rank);
}

std::shared_ptr<const LinearWrapper> LoraModel::create(Builder& builder, std::int64_t in_features,
                                                       std::int64_t out_features) {
  if (tokens_ && ties_embeddings_ && context_.log.modules[builder.module].name == std::string_view("lm_head"))
    refuse_beside_tokens(builder.module);
  const auto layer = std::make_shared<LoraLinear>(*this, builder, in_features, out_features);
  layers_.push_back(layer);
  return layer;
}

std::shared_ptr<const EmbeddingWrapper> LoraModel::create_embedding(Builder& builder, std::int64_t count,
                                                                    std::int64_t size) {
  for (const auto& [name, rows] : adapters_.front().config->trainable_token_indices)
    if (path_ends_with(context_.log, builder.module, name)) {
      if (is_target(builder.module)) refuse_beside_tokens(builder.module);
      tokens_ = std::make_shared<TrainableTokens>(builder, "token_adapter", rows, size);
      return tokens_;
    }
  if (!is_target(builder.module)) return nullptr;
  const auto layer = std::make_shared<LoraEmbedding>(*this, builder, count, size);
  layers_.push_back(layer);
  return layer;
}

std::shared_ptr<const ParametersWrapper> LoraModel::create_parameters(Builder& builder,
                                                                      std::span<const ParameterSizes> parameters,
                                                                      bool is_transposed) {
  const std::vector<std::string>& names = adapters_.front().config->target_parameters;
  if (names.empty()) return nullptr;
  std::vector<ParameterSizes> targets;
  for (const ParameterSizes& parameter : parameters)
    if (is_named(names, module_path(context_.log, builder.module) + "." + parameter.name)) targets.push_back(parameter);
  if (targets.empty()) return nullptr;
  const auto wrapper = std::make_shared<ParamWrapper>(*this, builder, targets, is_transposed);
  layers_.push_back(wrapper);
  return wrapper;
}

std::optional<Error> LoraModel::check_parameters(const std::vector<Parameter>& parameters) const {
  const std::vector<std::string>& names = adapters_.front().config->target_parameters;
  if (names.empty()) return std::nullopt;
  for (const Parameter& parameter : parameters) {
    const std::string path = module_path(context_.log, parameter.module) + "." + parameter.name;
    if (!is_wrapped(parameter.module) && is_named(names, path))
      return error("not-modelled", "found " + path + ", whose adapters are not supported yet", "target_parameters");
  }
  return std::nullopt;
}

void LoraModel::refuse_beside_tokens(ModuleId module) {
  refuse(error("not-modelled", "found " + module_path(context_.log, module) +
                                   ", of which trainable_token_indices trains rows: adapters beside them are not "
                                   "supported yet"));
}

std::shared_ptr<const LinearWrapper> LoraModel::create_tied(Builder& builder) {
  return tokens_ ? std::make_shared<TiedTrainableTokens>(builder, "token_adapter", tokens_) : nullptr;
}

void LoraModel::make_parameters(std::vector<Parameter>& parameters, std::span<const Parameter> tied,
                                std::size_t adapter) {
  // _mark_only_adapters_as_trainable
  const LoraBias bias = adapters_[adapter].config->bias;
  for (Parameter& parameter : parameters) {
    const auto is_base = [&](const std::shared_ptr<LoraLayer>& layer) {
      return layer->base_layer() == parameter.module;
    };
    if (bias == LoraBias::none || parameter.name != std::string_view("bias")) continue;
    parameter.tensor->leaf_requires_grad =
        bias == LoraBias::all || std::any_of(layers_.begin(), layers_.end(), is_base);
  }
  const std::size_t before = parameters.size();
  for (const bool of_parameters : {false, true})
    for (const std::shared_ptr<LoraLayer>& layer : layers_)
      if (layer->is_of_parameters() == of_parameters) layer->make_parameters(parameters, tied, gather_, adapter);
  for (std::size_t i = before; i < parameters.size(); ++i)
    parameters[i].tensor->leaf_requires_grad = adapters_[adapter].active;
  if (adapter > 0) return;
  if (tokens_) return tokens_->make_parameters(parameters, tied);
  for (const auto& named : adapters_[adapter].config->trainable_token_indices)
    refuse(error("inconsistent", "found " + quote(named.first) + ", which is no embedding of the model",
                 "trainable_token_indices"));
}

void LoraModel::cast_parameters(std::size_t adapter) {
  if (!adapters_[adapter].config->autocast_adapter_dtype || !context_.behaviours.peft_casts_adapters) return;
  LastCast param;
  for (const std::shared_ptr<LoraLayer>& layer : layers_) layer->cast_parameters(adapter, param);
  if (tokens_ && adapter == 0) tokens_->cast_parameters();
}

}  // namespace oometer
