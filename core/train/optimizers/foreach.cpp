#include "train/optimizers/foreach.h"

#include <utility>

#include "ops/ops.h"
#include "tensor/kernel.h"
#include "train/optimizer.h"

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
                                       const std::vector<std::vector<Tensor>>& states) {
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

void fused_(Op op, const std::vector<Parameter>& parameters, const std::vector<std::vector<Tensor>>& states) {
  for (const std::vector<std::size_t>& group : group_by_dtype(parameters)) {
    std::int64_t written = 0, of_grads = 0;
    for (const std::size_t i : group) {
      written += touched(parameters[i].tensor);
      of_grads += touched(parameters[i].tensor->grad);
      for (const Tensor& state : states[i]) written += touched(state);
    }
    const Tensor& first = parameters[group.front()].tensor;
    first.context().work({.op = static_cast<OpId>(op),
                          .kind = WorkKind::optimizer,
                          .dtype = first.dtype(),
                          .read = written + of_grads,
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
