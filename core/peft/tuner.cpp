#include "peft/tuner.h"

#include <algorithm>
#include <string_view>

#include "config/reader.h"
#include "nn/components.h"
#include "nn/output_embeddings.h"
#include "ops/ops.h"

namespace oometer {

void cast_half(const Tensor& parameter) {
  if (parameter && is_half(parameter.dtype())) cast_parameter(parameter, DType::float32);
}

Tuner::Tuner(Context& context, std::string kind, const TargetModules& targets,
             const std::vector<std::string>& modules_to_save)
    : context_(context), kind_(std::move(kind)), targets_(targets), modules_to_save_(modules_to_save) {
  if (Result<Pattern> pattern = Pattern::parse(targets.pattern); pattern && !targets.pattern.empty())
    pattern_ = *std::move(pattern);
  if (Result<Pattern> pattern = Pattern::parse(targets.excluded_pattern); pattern && !targets.excluded_pattern.empty())
    excluded_ = *std::move(pattern);
}

/// _set_trainable (utils/other.py): `key.endswith(name)`, so that "norm" means input_layernorm too.
bool Tuner::is_saved_as(ModuleId module, const std::string& name) const {
  return module_path(context_.log, module).ends_with(name);
}

/// check_target_module_exists: a module that is saved gets no adapter, nor does what is within it; here a name is
/// whole.
bool Tuner::is_saved_within(ModuleId module) const {
  if (modules_to_save_.empty()) return false;
  for (; !context_.log.is_root(module); module = context_.log.modules[module].parent)
    for (const std::string& name : modules_to_save_)
      if (path_ends_with(context_.log, module, name)) return true;
  return false;
}

bool Tuner::is_saved(ModuleId module) const {
  return std::any_of(modules_to_save_.begin(), modules_to_save_.end(),
                     [&](const std::string& name) { return is_saved_as(module, name); });
}

/// Whether the first number in the path is one of layers_to_transform. A path's first name is not looked at.
bool Tuner::is_in_layers(ModuleId module) const {
  if (targets_.layers_to_transform.empty()) return true;
  std::vector<ModuleId> path;
  for (; !context_.log.is_root(module); module = context_.log.modules[module].parent) path.push_back(module);
  for (std::size_t i = path.size(); i-- > 1;) {  // something comes behind the number
    const ModuleRecord& record = context_.log.modules[path[i]];
    if (record.index < 0) continue;
    const bool is_first = i + 1 == path.size();
    const std::vector<std::string>& pattern = targets_.layers_pattern;
    if (pattern.empty() ? is_first : std::find(pattern.begin(), pattern.end(), record.name) == pattern.end()) continue;
    const std::vector<std::int64_t>& layers = targets_.layers_to_transform;
    return std::find(layers.begin(), layers.end(), record.index) != layers.end();
  }
  return false;
}

/// isinstance(module, (torch.nn.Linear, Conv1D))
static bool is_linear(const ModuleRecord& record) {
  for (const std::string_view type : {"Linear", "NonDynamicallyQuantizableLinear", "Conv1D", "FalconLinear"})
    if (record.type == type) return true;
  return false;
}

bool Tuner::is_target(ModuleId module) const {
  if (is_saved_within(module)) return false;
  const auto has_name = [&](std::string_view name) { return path_ends_with(context_.log, module, name); };
  if (excluded_ && excluded_->matches(module_path(context_.log, module))) return false;
  if (std::any_of(targets_.excluded_names.begin(), targets_.excluded_names.end(), has_name)) return false;
  if (pattern_) return pattern_->matches(module_path(context_.log, module));
  if (targets_.all_linear) {
    // _maybe_include_all_linear_layers leaves out get_output_embeddings(), of which classes with a loss of CTC have
    // none: they have no input embeddings either (EmbeddingAccessMixin).
    const ModuleRecord& record = context_.log.modules[module];
    const bool is_at_top = context_.log.is_root(record.parent);
    const bool is_of_ctc = std::string_view(context_.log.modules[record.parent].type).ends_with("ForCTC");
    const auto is_output = [&](std::string_view name) {
      return has_name(name) && is_output_embeddings(name, is_at_top);
    };
    return is_linear(record) &&
           (is_of_ctc || std::none_of(kOutputEmbeddings.begin(), kOutputEmbeddings.end(), is_output));
  }
  return is_in_layers(module) && std::any_of(targets_.names.begin(), targets_.names.end(), has_name);
}

std::shared_ptr<const LinearWrapper> Tuner::wrap_linear(Builder& builder, std::int64_t in_features,
                                                        std::int64_t out_features) {
  const ModuleId module = builder.module;
  std::shared_ptr<const LinearWrapper> layer;
  if (ties_embeddings_ && context_.log.modules[module].name == std::string_view("lm_head")) {
    if (is_saved(module)) {
      saved_.push_back(std::make_shared<SavedModule>(builder));
      return saved_.back();
    }
    if (!is_target(module)) return create_tied(builder);
  }
  if (!is_target(module)) return nullptr;
  layer = create(builder, in_features, out_features);
  if (layer) found_.push_back({module, static_cast<ModuleId>(context_.log.modules.size() - 1)});
  return layer;
}

std::shared_ptr<const EmbeddingWrapper> Tuner::wrap_embedding(Builder& builder, std::int64_t count, std::int64_t size) {
  const ModuleId module = builder.module;
  if (ties_embeddings_ && is_saved(module)) {
    saved_.push_back(std::make_shared<SavedModule>(builder));
    return saved_.back();
  }
  if (!adapts_embeddings_) return nullptr;
  std::shared_ptr<const EmbeddingWrapper> layer = create_embedding(builder, count, size);
  if (layer) found_.push_back({module, static_cast<ModuleId>(context_.log.modules.size() - 1)});
  return layer;
}

std::shared_ptr<const ParametersWrapper> Tuner::wrap_parameters(Builder& builder,
                                                                std::span<const ParameterSizes> parameters,
                                                                bool is_transposed) {
  const ModuleId module = builder.module;
  std::shared_ptr<const ParametersWrapper> wrapper = create_parameters(builder, parameters, is_transposed);
  if (wrapper) found_.push_back({module, static_cast<ModuleId>(context_.log.modules.size() - 1)});
  return wrapper;
}

bool Tuner::is_wrapped(ModuleId module) const {
  return std::any_of(found_.begin(), found_.end(),
                     [&](const Target& target) { return target.module <= module && module <= target.last; });
}

std::optional<Error> Tuner::check_targets() {
  const std::vector<ModuleRecord>& modules = context_.log.modules;
  std::vector<std::string_view> linears;  // names to choose from, as they are in the layers
  const auto add = [&](const ModuleRecord& record) {
    if (record.index < 0 && record.type != std::string_view("lora.ParamWrapper") &&
        std::find(linears.begin(), linears.end(), record.name) == linears.end())
      linears.emplace_back(record.name);
  };
  std::size_t next = 0;
  for (ModuleId module = 1; module < modules.size(); ++module) {
    if (next < found_.size() && found_[next].module == module) {
      add(modules[module]);
      module = found_[next++].last;
      continue;
    }
    if (is_linear(modules[module])) {
      add(modules[module]);
    } else if (!targets_.all_linear && is_target(module)) {
      const std::string_view type = modules[module].type;
      const std::string what =
          "found " + module_path(context_.log, module) + " (" + std::string(type) + ") among the targets: ";
      if (type == "Embedding" || type == "Conv2d")
        return error("not-modelled",
                     what +
                         "adapters on modules other than Linear are not supported yet, or, of embeddings, on several "
                         "GPUs and with quantized weights; modules_to_save trains such a module in full");
      return error("inconsistent",
                   what + "peft adapts single layers, not their containers; expected names of Linear layers");
    }
  }
  if (found_.empty()) return nothing_targeted(linears);
  for (const std::string& name : targets_.names) {
    const auto has_name = [&](const Target& target) { return path_ends_with(context_.log, target.module, name); };
    if (std::any_of(found_.begin(), found_.end(), has_name)) continue;
    const std::string_view near = closest(name, linears);
    notes_.push_back(kind_ + ": no module matches " + quote(name) + "; peft ignores it" +
                     (near.empty() ? "" : " (did you mean " + quote(near) + "?)"));
  }
  return std::nullopt;
}

std::optional<Error> Tuner::nothing_targeted(const std::vector<std::string_view>& linears) const {
  std::string known;
  for (const std::string_view name : linears) known += (known.empty() ? "" : ", ") + std::string(name);
  std::string message;
  if (!targets_.pattern.empty()) {
    message = "found " + quote(targets_.pattern) +
              ", which matches no module's full path (from its first character to its last); the Linear layers are " +
              known;
    if (const std::string_view near = closest(targets_.pattern, linears); !near.empty())
      message += "; did you mean [" + quote(near) + "]?";
  } else {
    std::string given, near;
    for (const std::string& name : targets_.names) {
      given += (given.empty() ? "" : ", ") + quote(name);
      const std::string_view found = closest(name, linears);
      if (!found.empty() && near.find(quote(found)) == std::string::npos)
        near += (near.empty() ? "" : ", ") + quote(found);
    }
    message = "found [" + given + "], which match no module (or only modules that modules_to_save trains in full); ";
    message += near.empty() ? "the Linear layers are " + known : "did you mean " + near + "?";
  }
  return error("inconsistent", message);
}

Error Tuner::error(const char* code, const std::string& message, const char* key) const {
  return {code, "/training/" + kind_ + "/" + key, message};
}

void Tuner::save_modules(std::vector<Parameter>& parameters, std::span<const Parameter> tied) {
  if (modules_to_save_.empty()) return;
  for (const std::shared_ptr<SavedModule>& module : saved_) module->copy(parameters, tied);
  const auto has_copy = [&](ModuleId module) {
    return std::any_of(saved_.begin(), saved_.end(),
                       [&](const std::shared_ptr<SavedModule>& saved) { return saved->module() == module; });
  };
  std::vector<ModuleId> saved;  // in the order of named_modules()
  for (ModuleId module = 1; module < context_.log.modules.size(); ++module)
    if (is_saved(module) && !has_copy(module)) saved.push_back(module);
  train_copies(parameters, saved);
}

void Tuner::train_copies(std::vector<Parameter>& parameters, const std::vector<ModuleId>& modules) {
  const auto is_within = [&](ModuleId module, ModuleId ancestor) {
    while (module > ancestor) module = context_.log.modules[module].parent;
    return module == ancestor;
  };
  std::vector<Parameter> originals;
  std::vector<char> copied(parameters.size(), false);
  for (const ModuleId module : modules) {
    const std::size_t first = originals.size();
    std::vector<std::size_t> within;
    TensorList whole;
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      if (copied[i] || !is_within(parameters[i].module, module)) continue;
      copied[i] = true;
      within.push_back(i);
      whole.push_back(parameters[i].tensor);
    }
    if (gather_) gather_(whole, true);
    whole.clear();
    for (const std::size_t i : within) {
      const Parameter& parameter = parameters[i];
      const ModuleScope scope(context_, parameter.module);
      Parameter original = parameter;
      original.tensor = detach(parameter.tensor);
      originals.push_back(original);
      replace_data(parameter.tensor, clone(original.tensor));
      context_.set_role(parameter.tensor, Role::parameter, parameter.module);
      parameter.tensor->leaf_requires_grad = true;
    }
    for (std::size_t i = first; i < originals.size(); ++i) whole.push_back(originals[i].tensor);
    if (gather_) gather_(whole, false);
  }
  // Before their copies: ModulesToSaveWrapper.original_module comes first, as LNTuningLayer.base_layer does.
  parameters.insert(parameters.begin(), originals.begin(), originals.end());
}

std::optional<Error> Tuner::inject(std::vector<Parameter>& parameters, std::span<const Parameter> tied) {
  if (refusal_) return refusal_;
  if (std::optional<Error> error = check_parameters(parameters)) return error;
  if (std::optional<Error> error = check_targets()) return error;
  if (std::optional<Error> error =
          check_names(context_.log, kModel, modules_to_save_, "/training/" + kind_ + "/modules_to_save",
                      [&](ModuleId module, const std::string& name) { return is_saved_as(module, name); }))
    return error;
  const NoGrad no_grad(context_);
  for (Parameter& parameter : parameters) parameter.tensor->leaf_requires_grad = false;
  for (std::size_t adapter = 0; adapter < adapters(); ++adapter) {
    make_parameters(parameters, tied, adapter);
    if (adapter == 0) save_modules(parameters, tied);
    cast_parameters(adapter);
  }
  sort_by_module(parameters);
  return std::move(refusal_);
}

}  // namespace oometer
