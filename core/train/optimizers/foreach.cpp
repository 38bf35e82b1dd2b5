#include "train/optimizers/foreach.h"

#include <algorithm>

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

void TensorLists::fused_(Op op) const {
  if (params.empty()) return;
  std::int64_t written = bytes_of(params);
  for (const TensorList& list : states) written += bytes_of(list);
  params.front().context().work({.op = static_cast<OpId>(op),
                                 .kind = WorkKind::optimizer,
                                 .dtype = params.front().dtype(),
                                 .read = written + bytes_of(grads),
                                 .written = written});
}

std::vector<TensorLists> group_tensors(const std::vector<Parameter>& parameters,
                                       const std::vector<std::vector<Tensor>>& states) {
  // ForeachUtils.h holds the groups in a std::unordered_map, which libstdc++ reads from its newest entry.
  std::vector<TensorLists> groups;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& tensor = parameters[i].tensor;
    if (!tensor->grad) continue;
    const auto has_dtype = [&](const TensorLists& lists) { return lists.params.front().dtype() == tensor.dtype(); };
    auto group = std::find_if(groups.begin(), groups.end(), has_dtype);
    if (group == groups.end()) group = groups.insert(groups.begin(), TensorLists());
    group->indices.push_back(i);
    group->modules.push_back(parameters[i].module);
    group->params.push_back(tensor);
    group->grads.push_back(tensor->grad);
    if (group->states.size() < states[i].size()) group->states.resize(states[i].size());
    for (std::size_t k = 0; k < states[i].size(); ++k) group->states[k].push_back(states[i][k]);
  }
  return groups;
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
