#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "models/model.h"
#include "nn/module.h"
#include "result.h"
#include "tensor/context.h"
#include "train/config.h"

namespace oometer {

/// The modules of which peft's modules_to_save trains a copy, by the end of their paths (_set_trainable,
/// utils/other.py), in the order of named_modules(): each is a ModulesToSaveWrapper around the original and the copy.
std::vector<ModuleId> saved_modules(const Log& log, const TrainingConfig& training);

/// What a deep copy of these modules makes of their buffers, as of a BatchNorm2d's statistics.
void copy_saved_buffers(Context& context, const TrainingConfig& training, Model& model);

/// Of a saved module with others in it all originals come before all copies. `items` lie module by module, in any order
/// of the tree that keeps a module's own together; `of` gives an item's Parameter.
template <class Item, class Of>
void put_originals_first(std::vector<Item>& items, const Log& log, const TrainingConfig& training, const Of& of) {
  for (const ModuleId saved : saved_modules(log, training)) {
    const auto is_within = [&](const Item& item) {
      ModuleId module = of(item).module;
      while (module > saved) module = log.modules[module].parent;
      return module == saved;
    };
    const auto first = std::find_if(items.begin(), items.end(), is_within);
    const auto last = std::find_if_not(first, items.end(), is_within);
    std::stable_partition(first, last, [&](const Item& item) { return !of(item).tensor->leaf_requires_grad; });
  }
}

/// The error of a parameter that two modules have which are not of one unit: FSDP1 flattens it in one of them only, and
/// FSDP2 refuses it. `unit_of` gives a module's.
template <class UnitOf>
std::optional<Error> check_shared(const Log& log, const Model& model, const UnitOf& unit_of) {
  for (const Parameter& other : model.tied)
    for (const Parameter& parameter : model.parameters)
      if (parameter.tensor.get() == other.tensor.get() && unit_of(parameter.module) != unit_of(other.module))
        return Error{"inconsistent", "/parallel/fsdp/wrap",
                     "found one parameter in " + module_path(log, parameter.module) + " and in " +
                         module_path(log, other.module) +
                         ", which are of two FSDP units: FSDP stops at it; expected a list without the class of one "
                         "of them"};
  return std::nullopt;
}

/// The setting by which adapters have the dtype of the weights, which sharding can need.
inline const char* adapter_type_pointer(const TrainingConfig& training) {
  return training.ia3    ? "/training/ia3/autocast_adapter_dtype"
         : training.lora ? "/training/lora/autocast_adapter_dtype"
                         : "/training";
}

}  // namespace oometer
