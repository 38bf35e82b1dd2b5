#include "nn/components.h"

#include <algorithm>
#include <bitset>
#include <set>
#include <string_view>
#include <utility>

#include "config/reader.h"

namespace oometer {

namespace {

/// A list of modules has no record of its own: `visual.blocks` names each of its items.
bool is_component(const Log& log, ModuleId module, const std::string& name) {
  if (path_ends_with(log, module, name)) return true;
  const ModuleRecord& record = log.modules[module];
  return record.index >= 0 && record.name[0] != '\0' && name.ends_with(record.name) &&
         path_ends_with(log, module, name + "." + std::to_string(record.index));
}

bool is_parameter(const Log& log, const Parameter& parameter, const std::string& full) {
  const std::string_view name(full), own(parameter.name);
  if (name == own) return true;
  return name.size() > own.size() && name.ends_with(own) && name[name.size() - own.size() - 1] == '.' &&
         path_ends_with(log, parameter.module, name.substr(0, name.size() - own.size() - 1));
}

/// Modules and parameters that a list of names means.
class Named {
 public:
  Named(const Log& log, ModuleId root, const std::vector<std::string>& names)
      : log_(log), names_(names), modules_(log.modules.size()) {
    if (names.empty()) return;
    for (const std::string& name : names)
      for (std::size_t i = 0; i < name.size(); ++i)
        if (i == 0 || name[i - 1] == '.') initials_.set(static_cast<unsigned char>(name[i]));
    for (ModuleId module = root + 1, end = log.end_of(root); module < end; ++module)
      modules_[module] = modules_[log.modules[module].parent] || has_name(module);
  }

  bool operator()(const Parameter& parameter) const {
    return modules_[parameter.module] ||
           (may_be(parameter.name) && std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
              return is_parameter(log_, parameter, name);
            }));
  }

  /// The module itself, not one that holds it.
  bool has_name(ModuleId module) const {
    return may_be(log_.modules[module].name) && std::any_of(names_.begin(), names_.end(), [&](const std::string& name) {
             return is_component(log_, module, name);
           });
  }

 private:
  /// Nearly all modules and parameters are told by their first letter not to be meant.
  bool may_be(const char* own) const { return own[0] == '\0' || initials_[static_cast<unsigned char>(own[0])]; }

  const Log& log_;
  const std::vector<std::string>& names_;
  std::vector<char> modules_;  ///< it or one that holds it is named
  std::bitset<256> initials_;  ///< of the dotted names' parts
};

std::optional<Error> check_components(const Log& log, ModuleId root, const std::vector<std::string>& names,
                                      const std::string& pointer, std::span<const Parameter> parameters) {
  const auto is_named = [&](ModuleId module, const std::string& name) { return is_component(log, module, name); };
  return check_names(log, root, names, pointer, is_named, parameters);
}

/// The last `count` names of a path: all that a name of so many parts could have meant.
std::string_view last_names(std::string_view path, std::ptrdiff_t count) {
  for (std::size_t i = path.size(); i-- > 0;)
    if (path[i] == '.' && --count == 0) return path.substr(i + 1);
  return path;
}

/// A few names that are in the model: those nearest to `name`, or else its components.
std::string examples(const Log& log, ModuleId root, const std::string& name, std::span<const Parameter> parameters) {
  const std::ptrdiff_t count = std::count(name.begin(), name.end(), '.') + 1;
  std::set<std::string> known, components;
  const auto add = [&](const std::string& path) { known.emplace(last_names(path, count)); };
  for (ModuleId module = root + 1, end = log.end_of(root); module < end; ++module) {
    const ModuleRecord& record = log.modules[module];
    const std::string path = module_path(log, module);
    add(path);
    if (record.index >= 0) add(path.substr(0, path.rfind('.')));  // the list that it is in
    if (record.name[0] != '\0' && (record.parent == root || log.modules[record.parent].parent == root))
      components.insert(record.name);
  }
  for (const Parameter& parameter : parameters) {
    const std::string module = module_path(log, parameter.module);
    add(module.empty() ? parameter.name : module + "." + parameter.name);
  }
  std::vector<std::string_view> candidates(known.begin(), known.end());
  std::string text;
  for (int i = 0; i < 3; ++i) {
    const std::string_view near = closest(name, candidates);
    if (near.empty()) break;
    text += (text.empty() ? "" : ", ") + std::string(near);
    std::erase(candidates, near);
  }
  if (text.empty())
    for (const std::string& component : components) text += (text.empty() ? "" : ", ") + component;
  return text;
}

}  // namespace

std::optional<Error> check_names(const Log& log, ModuleId root, const std::vector<std::string>& names,
                                 const std::string& pointer, const IsNamed& is_named,
                                 std::span<const Parameter> parameters) {
  const ModuleId end = log.end_of(root);
  for (std::size_t i = 0; i < names.size(); ++i) {
    bool found = false;
    for (ModuleId module = root + 1; !found && module < end; ++module) found = is_named(module, names[i]);
    if (!found && std::none_of(parameters.begin(), parameters.end(),
                               [&](const Parameter& parameter) { return is_parameter(log, parameter, names[i]); }))
      return Error{"unknown-value", pointer + "/" + std::to_string(i),
                   "found " + quote(names[i]) + ", expected a module" + (parameters.empty() ? "" : " or a parameter") +
                       " of " + log.modules[root].type + ", for example " + examples(log, root, names[i], parameters)};
  }
  return std::nullopt;
}

std::optional<Error> apply_components(Context& context, ModuleId root, const std::vector<Parameter>& parameters,
                                      const Components& components) {
  const Log& log = context.log;
  if (auto error = check_components(log, root, components.freeze, "/training/freeze", parameters)) return error;
  if (auto error = check_components(log, root, components.train_only, "/training/train_only", parameters)) return error;
  if (auto error = check_components(log, root, components.no_grad, "/training/no_grad", {})) return error;
  if (!components.freeze.empty() || !components.train_only.empty()) {
    const Named frozen(log, root, components.freeze), trained(log, root, components.train_only);
    for (const Parameter& parameter : parameters)
      if (frozen(parameter) || (!components.train_only.empty() && !trained(parameter)))
        parameter.tensor->leaf_requires_grad = false;
  }
  if (!components.no_grad.empty()) {
    const Named named(log, root, components.no_grad);
    context.modules_without_grad.resize(log.modules.size());
    for (ModuleId module = root + 1, end = log.end_of(root); module < end; ++module) {
      const ModuleRecord& record = log.modules[module];
      char& is_without_grad = context.modules_without_grad[module];
      // peft has wrapped a module whose forward was under no_grad already.
      if (record.name == std::string_view("base_layer"))
        is_without_grad = std::exchange(context.modules_without_grad[record.parent], false);
      else
        is_without_grad = named.has_name(module);
    }
  }
  return std::nullopt;
}

std::optional<Error> train_also(const Log& log, ModuleId root, const std::vector<Parameter>& parameters,
                                const std::vector<std::string>& names, const std::string& pointer) {
  if (names.empty()) return std::nullopt;
  if (auto error = check_components(log, root, names, pointer, parameters)) return error;
  const Named named(log, root, names);
  for (const Parameter& parameter : parameters)
    if (named(parameter)) parameter.tensor->leaf_requires_grad = true;
  return std::nullopt;
}

}  // namespace oometer
