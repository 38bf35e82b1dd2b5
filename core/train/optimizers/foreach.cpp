#include "train/optimizers/foreach.h"

#include <algorithm>
#include <utility>

#include "ops/ops.h"
#include "tensor/kernel.h"

namespace oometer {

namespace {

std::int64_t bytes_of(const TensorList& list) {
  std::int64_t bytes = 0;
  for (const Tensor& tensor : list) bytes += touched(tensor);
  return bytes;
}

void tell(Op op, std::initializer_list<const TensorList*> lists) {
  const TensorList& first = **lists.begin();
  if (first.empty()) return;
  std::int64_t read = 0;
  for (const TensorList* list : lists) read += bytes_of(*list);
  first.front().context().work({.op = static_cast<OpId>(op),
                                .kind = WorkKind::optimizer,
                                .dtype = first.front().dtype(),
                                .read = read,
                                .written = bytes_of(first)});
}

}  // namespace

TensorList TensorLists::foreach (Op op, std::initializer_list<const TensorList*> lists) const {
  const TensorList& first = **lists.begin();
  TensorList result;
  result.reserve(first.size());
  for (std::size_t i = 0; i < first.size(); ++i) {
    const ModuleScope scope(first[i].context(), modules[i]);
    result.push_back(empty_like(op, first[i]));
  }
  tell(op, lists);
  return result;
}

void TensorLists::foreach_(Op op, std::initializer_list<const TensorList*> lists) const { tell(op, lists); }

std::vector<TensorLists> group_tensors(const std::vector<Parameter>& parameters,
                                       std::span<const OptimizerState> states) {
  std::vector<TensorLists> groups;
  for (std::vector<std::size_t>& indices : group_by_dtype(parameters)) {
    TensorLists& group = groups.emplace_back();
    for (const std::size_t i : indices) {
      group.modules.push_back(parameters[i].module);
      group.params.push_back(parameters[i].tensor);
      group.grads.push_back(parameters[i].tensor->grad);
      if (group.states.size() < states[i].size()) group.states.resize(states[i].size());
      for (std::size_t k = 0; k < states[i].size(); ++k) group.states[k].push_back(states[i][k]);
    }
    group.indices = std::move(indices);
  }
  return groups;
}

void fused_(Op op, const std::vector<Parameter>& parameters, std::int64_t states, bool has_counter) {
  struct Kernel {
    DType dtype;
    std::int64_t of_params, of_grads, counters;
  };
  std::vector<Kernel> kernels;  // as group_by_dtype has them
  for (const Parameter& parameter : parameters) {
    const Tensor& tensor = parameter.tensor;
    if (!tensor->grad) continue;
    auto kernel = std::find_if(kernels.begin(), kernels.end(),
                               [&](const Kernel& other) { return other.dtype == tensor.dtype(); });
    if (kernel == kernels.end()) kernel = kernels.insert(kernels.begin(), {tensor.dtype(), 0, 0, 0});
    kernel->of_params += touched(tensor);
    kernel->of_grads += touched(tensor->grad);
    kernel->counters += has_counter;
  }
  for (const Kernel& kernel : kernels) {
    const std::int64_t written = kernel.of_params * (1 + states) + kernel.counters * element_size(DType::float32);
    parameters.front().tensor.context().work({.op = static_cast<OpId>(op),
                                              .kind = WorkKind::optimizer,
                                              .dtype = kernel.dtype,
                                              .read = written + kernel.of_grads,
                                              .written = written});
  }
}

void update_(Op op, std::initializer_list<const Tensor*> tensors) {
  const Tensor& written = **tensors.begin();
  written.context().work({.op = static_cast<OpId>(op),
                          .kind = WorkKind::optimizer,
                          .dtype = written.dtype(),
                          .read = touched(tensors),
                          .written = touched(written)});
}

}  // namespace oometer
