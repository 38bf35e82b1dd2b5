#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"
#include "result.h"
#include "tensor/context.h"
#include "trace/log.h"

/// What a job's lists of names mean in a model.
namespace oometer {

/// Dotted names, at any depth: `vision_tower` is `model.vision_tower`, and `visual.blocks`, a list of modules, is each
/// of its items. A module with all that is in it, or a single parameter.
struct Components {
  std::vector<std::string> freeze;      ///< requires_grad = False
  std::vector<std::string> train_only;  ///< if any: everything else is frozen
  std::vector<std::string> no_grad;     ///< modules whose forward runs under torch.no_grad

  bool operator==(const Components&) const = default;
};

/// requires_grad as `components` says, and Context::modules_without_grad, of the model with that root, whose
/// `parameters` they are. An error names what is not in it.
std::optional<Error> apply_components(Context& context, ModuleId root, const std::vector<Parameter>& parameters,
                                      const Components& components);

/// requires_grad_(True) on what `names` mean, whatever was frozen before. They stand at `pointer` in the job.
std::optional<Error> train_also(const Log& log, ModuleId root, const std::vector<Parameter>& parameters,
                                const std::vector<std::string>& names, const std::string& pointer);

/// Whether a library takes a name for that module.
using IsNamed = std::function<bool(ModuleId module, const std::string& name)>;

/// The error of the first of `names`, which stand at `pointer` in the job, that means nothing in the model: neither a
/// module, by that library's rule, nor one of `parameters`. With the names in the model that are nearest to it.
std::optional<Error> check_names(const Log& log, ModuleId root, const std::vector<std::string>& names,
                                 const std::string& pointer, const IsNamed& is_named,
                                 std::span<const Parameter> parameters = {});

}  // namespace oometer
