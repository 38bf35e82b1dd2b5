#pragma once

#include <initializer_list>
#include <span>
#include <vector>

#include "nn/module.h"
#include "tensor/context.h"
#include "tensor/tensor_list.h"
#include "train/optimizer.h"

namespace oometer {

/// Lists of the tensors of parameters of one type, and torch's _foreach_ functions of such lists: each takes all
/// tensors of its lists in one kernel.
struct TensorLists {
  std::vector<std::size_t> indices;  ///< the parameters' in their group
  std::vector<ModuleId> modules;     ///< whose they are
  TensorList params, grads;
  std::vector<TensorList> states;  ///< those of the same place in each state

  /// One that makes tensors, of the shape and type of the first list's. `op`: the function's name.
  TensorList foreach (Op op, std::initializer_list<const TensorList*> lists) const;
  /// One in place: it writes the first list, and reads it with the others.
  void foreach_(Op op, std::initializer_list<const TensorList*> lists) const;
  /// `grads` with weight decay that is not decoupled: new ones, grad.add(param, alpha=weight_decay).
  void decay_grads() { grads = foreach (Op::foreach_add, {&grads, &params}); }
};

/// The tensors of the parameters that have a gradient, a type after the other (group_by_dtype).
std::vector<TensorLists> group_tensors(const std::vector<Parameter>& parameters,
                                       std::span<const OptimizerState> states);

/// A _fused_ function: one kernel a type, which reads everything and writes all but gradients. `states`: those of a
/// parameter that are as large as it; `has_counter`: its number of steps is on the device too.
void fused_(Op op, const std::vector<Parameter>& parameters, std::int64_t states, bool has_counter);

/// Calls `update(param, grad, state)` for each parameter with a gradient, as the _single_tensor_ functions loop.
template <class Update>
void for_each_tensor(const std::vector<Parameter>& parameters, std::span<OptimizerState> states, const Update& update) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& tensor = parameters[i].tensor;
    if (!tensor->grad) continue;
    const ModuleScope scope(tensor.context(), parameters[i].module);
    update(tensor, tensor->grad, states[i]);
  }
}

/// One tensor's kernel of an optimizer, in place: it writes the first, and reads it with the others.
void update_(Op op, std::initializer_list<const Tensor*> tensors);

}  // namespace oometer
