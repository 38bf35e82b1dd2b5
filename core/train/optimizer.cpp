#include "train/optimizer.h"

#include <algorithm>
#include <string>

#include "autograd/engine.h"
#include "ops/ops.h"
#include "tensor/tensor_list.h"

namespace oometer {

Optimizer::Optimizer(Context& context, const OptimizerConfig& config) : context_(context), config_(config) {}

void Optimizer::add_group(std::vector<Parameter> parameters, bool decays) {
  Group& group = groups_.emplace_back();
  group.parameters = std::move(parameters);
  group.states.resize(group.parameters.size());
  group.weight_decay = decays ? config_.args.weight_decay : 0;
}

void Optimizer::make_states(Group& group) {
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const Parameter& parameter = group.parameters[i];
    if (!group.states[i].empty() || !parameter.tensor->grad) continue;
    const ModuleScope scope(context_, parameter.module);
    group.states[i] = make_state(parameter);
  }
}

Tensor Optimizer::state_like(const Tensor& like, Op op) const {
  const std::int64_t bytes = like.nbytes();
  const Storage storage = context_.allocate(op, bytes, like.dtype(), like.sizes(), Role::optimizer_state);
  if (bytes == like->storage->bytes) context_.share_like(storage, like);  // not a part of a flat one
  return on_storage(storage, like.sizes(), like.strides(), like.dtype());
}

Tensor Optimizer::scalar_state(Op op, DType dtype) const {
  return empty(context_, op, {}, dtype, Role::optimizer_state);
}

void Optimizer::backward(const Tensor& loss) { autograd::backward(loss); }

void Optimizer::step_group(std::size_t index) {
  const NoGrad no_grad(context_);
  make_states(groups_[index]);
  update(groups_[index]);
}

void Optimizer::step() {
  for (std::size_t i = 0; i < groups_.size(); ++i) step_group(i);
}

void Optimizer::zero_grad() {
  for (Group& group : groups_)
    for (Parameter& parameter : group.parameters) parameter.tensor->grad.reset();
}

std::int64_t states_per_parameter(const OptimizerConfig& config) {
  if (config.name == OptimizerName::adagrad) return 1;
  if (config.name != OptimizerName::sgd) return 2;  // DeepSpeedCPULion's second one is never used
  return config.momentum != 0 ? 1 : 0;
}

namespace {

/// LLaVATrainer.create_optimizer with mm_projector_lr: two groups of the projector after those of the others.
constexpr std::int64_t kGroupsOfLlava = 4;
[[gnu::noinline]] bool is_of_projector(const Parameter& parameter) {
  return module_path(parameter.tensor.context().log, parameter.module).find("mm_projector") != std::string::npos;
}

}  // namespace

std::vector<std::vector<Parameter>> parameter_groups(const std::vector<Parameter>& parameters, std::int64_t groups) {
  std::vector<std::vector<Parameter>> result(static_cast<std::size_t>(groups));
  for (const Parameter& parameter : parameters) {
    if (!parameter.tensor->leaf_requires_grad) continue;
    std::size_t group = groups > 1 && !parameter.decays ? 1 : 0;
    if (groups == kGroupsOfLlava && is_of_projector(parameter)) group += 2;
    result[group].push_back(parameter);
  }
  std::erase_if(result, [](const std::vector<Parameter>& group) { return group.empty(); });
  return result;
}

std::vector<std::vector<std::size_t>> group_by_dtype(const std::vector<Parameter>& parameters) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Tensor& tensor = parameters[i].tensor;
    if (!tensor->grad) continue;
    const auto has_dtype = [&](const std::vector<std::size_t>& group) {
      return parameters[group.front()].tensor.dtype() == tensor.dtype();
    };
    auto group = std::find_if(groups.begin(), groups.end(), has_dtype);
    if (group == groups.end()) group = groups.insert(groups.begin(), std::vector<std::size_t>());
    group->push_back(i);
  }
  return groups;
}

Tensor clip_grad_norm(Context& context, const std::vector<Parameter>& parameters, bool are_sharded) {
  const NoGrad no_grad(context);
  TensorList norms;
  for (const std::vector<std::size_t>& group : group_by_dtype(parameters)) {
    constexpr std::int64_t kChunk = 65536;  // kChunkSize, ForeachFunctors / MultiTensorApply.cuh
    std::int64_t chunks = 0;
    for (const std::size_t i : group) chunks += (parameters[i].tensor->grad.numel() + kChunk - 1) / kChunk;
    // foreach_tensor_norm_cuda, ForeachReduceOp.cu: where each tensor's chunks begin, and a partial result a chunk.
    const Tensor offsets =
        empty(context, Op::foreach_norm, {static_cast<std::int64_t>(group.size()) + 1}, DType::int64);
    const Tensor partial = empty(context, Op::foreach_norm, {chunks}, DType::float32);
    for (const std::size_t i : group)
      norms.push_back(empty(context, Op::foreach_norm, {}, parameters[i].tensor->grad.dtype()));
  }
  if (norms.empty()) return {};
  std::int64_t bytes = 0;
  for (const Parameter& parameter : parameters)
    if (parameter.tensor->grad) bytes += parameter.tensor->grad.nbytes();
  const DType of_gradients = parameters.front().tensor.dtype();
  context.work(
      {.op = static_cast<OpId>(Op::foreach_norm), .kind = WorkKind::reduction, .dtype = of_gradients, .read = bytes});
  Tensor total;
  {
    const DType dtype = norms.front().dtype() == norms.back().dtype() ? norms.front().dtype() : DType::float32;
    const Tensor stacked = empty(context, Op::stack, {static_cast<std::int64_t>(norms.size())}, dtype);
    Tensor reduced;
    if (are_sharded) {
      // _NormPartial (torch/distributed/tensor/_ops/_math_ops.py): the p-th powers are summed, out of place.
      const Tensor powers = empty_like(Op::pow, stacked), sums = empty_like(Op::clone, powers);
      reduced = empty_like(Op::pow, sums);
    }
    total = empty(context, Op::linalg_vector_norm, {}, dtype);
    norms.clear();
  }
  // max_norm / (total_norm + 1e-6), clamped to 1
  Tensor coefficient;
  {
    const Tensor padded = add_scalar(total);
    const Tensor inverse = empty_like(Op::reciprocal, padded);
    coefficient = mul_scalar(inverse);
  }
  const Tensor clamped = empty_like(Op::clamp, coefficient);
  context.work({.op = static_cast<OpId>(Op::foreach_mul),
                .kind = WorkKind::elementwise,
                .dtype = of_gradients,
                .read = bytes,
                .written = bytes});
  return total;
}

}  // namespace oometer
