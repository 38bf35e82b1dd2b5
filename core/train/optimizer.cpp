#include "train/optimizer.h"

#include <algorithm>
#include <string_view>

#include "ops/ops.h"
#include "tensor/tensor_list.h"

namespace oometer {

namespace {

Storage state_like(const Tensor& tensor, Op op) {
  Context& context = tensor.context();
  Storage state = context.allocate(op, tensor.nbytes(), tensor.dtype(), tensor.sizes(), Role::optimizer_state);
  if (tensor.nbytes() == tensor->storage->bytes) context.share_like(state, tensor);  // not a part of a flat one
  return state;
}

}  // namespace

Optimizer::Optimizer(Context& context, const OptimizerConfig& config) : context_(context), config_(config) {
  if (config.implementation == OptimizerImplementation::deepspeed_fused)
    overflow_buffer_ = context.allocate(Op::to_copy, 4, DType::int32, {1}, Role::optimizer_state);
}

void Optimizer::init_group(Group& group) {
  group.states.resize(group.parameters.size());
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const Parameter& parameter = group.parameters[i];
    State& state = group.states[i];
    if (state.made || !parameter.tensor->grad) continue;
    const ModuleScope scope(context_, parameter.module);
    state.made = true;
    make_state(parameter, state);
    add_bytes(group, parameter, state);
  }
}

void Optimizer::make_state(const Parameter& parameter, State& state) {
  if (config_.is_bitsandbytes()) return init_bitsandbytes(parameter, state);
  if (config_.name == OptimizerName::sgd) {
    if (config_.momentum != 0) state.first = state_like(parameter.tensor->grad, Op::clone);
    return;
  }
  // adam.py, _init_group: a step counter on the device only for the fused (or capturable) kernel.
  if (config_.implementation == OptimizerImplementation::fused)
    state.step = context_.allocate(Op::zeros, 4, DType::float32, {}, Role::optimizer_state);
  state.first = state_like(parameter.tensor, Op::zeros_like);
  state.second = state_like(parameter.tensor, Op::zeros_like);
}

// Optimizer2State.init_state.
void Optimizer::init_bitsandbytes(const Parameter& parameter, State& state) {
  constexpr std::int64_t kMin8bitSize = 4096, kBlock = 256;
  // HF Trainer keeps embeddings at 32 bits (create_optimizer: GlobalOptimManager.register_module_override).
  const bool is_embedding = context_.log.modules[parameter.module].type == std::string_view("Embedding");
  if (config_.implementation == OptimizerImplementation::bnb_32bit || is_embedding ||
      parameter.tensor.numel() < kMin8bitSize) {
    state.first = bitsandbytes_buffer(parameter, DType::float32);
    state.second = bitsandbytes_buffer(parameter, DType::float32);
    return;
  }
  if (!qmap_) {  // name2qmap: 256 numbers each
    qmap_ = context_.allocate(Op::to_copy, 1024, DType::float32, {256}, Role::optimizer_state);
    unsigned_qmap_ = context_.allocate(Op::to_copy, 1024, DType::float32, {256}, Role::optimizer_state);
  }
  state.first = bitsandbytes_buffer(parameter, DType::uint8);
  state.second = bitsandbytes_buffer(parameter, DType::uint8);
  const std::int64_t blocks = (parameter.tensor.numel() + kBlock - 1) / kBlock;
  for (Storage* absmax : {&state.first_absmax, &state.second_absmax})
    *absmax = context_.allocate(Op::zeros, checked_product(blocks, 4), DType::float32, {blocks}, Role::optimizer_state);
}

// Optimizer8bit.get_state_buffer.
Storage Optimizer::bitsandbytes_buffer(const Parameter& parameter, DType dtype) {
  constexpr std::int64_t kLeastPaged = 100'000;
  const Tensor& tensor = parameter.tensor;
  const std::int64_t bytes = checked_product(tensor.numel(), element_size(dtype));
  if (config_.paged && tensor.numel() >= kLeastPaged) {
    paged_bytes_ += bytes;
    return {};
  }
  return context_.allocate(Op::zeros_like, bytes, dtype, tensor.sizes(), Role::optimizer_state);
}

void Optimizer::add_bytes(Group& group, const Parameter& parameter, const State& state) {
  const auto bytes = [](const Storage& storage) { return storage ? storage->bytes : 0; };
  const std::int64_t numel = parameter.tensor.numel();
  group.parameter_bytes += checked_product(numel, element_size(parameter.tensor.dtype()));
  group.gradient_bytes += checked_product(numel, element_size(parameter.tensor->grad.dtype()));
  group.first_bytes += bytes(state.first) + bytes(state.first_absmax);
  group.second_bytes += bytes(state.second) + bytes(state.second_absmax);
}

/// What a group's update reads and writes, pass by pass of torch's loops (torch/optim): parameters p, gradients g, the
/// states m and v, and the roots s of foreach and for-loop Adam.
void Optimizer::tell(const Group& group) const {
  const std::int64_t p = group.parameter_bytes, g = group.gradient_bytes, m = group.first_bytes, v = group.second_bytes;
  const bool is_foreach = config_.implementation == OptimizerImplementation::foreach_,
             is_for_loop = config_.implementation == OptimizerImplementation::for_loop;
  std::int64_t read = p + g + m + v, written = p + m + v;  // one kernel
  if ((is_foreach || is_for_loop) && config_.name == OptimizerName::sgd) {
    read += m;  // mul_(momentum), add_(gradient), then the parameters' add_
    written += m;
  } else if (is_foreach || is_for_loop) {
    // mul_ (AdamW's decay), lerp_, mul_, addcmul_, sqrt, div_, add_, addcdiv_; for-loop's sqrt and div tell themselves.
    const std::int64_t decay = config_.name == OptimizerName::adamw ? p : 0, s = p;
    read = decay + p + 2 * g + 2 * m + (is_for_loop ? 2 * v + 2 * s : 3 * v + 3 * s);
    written = decay + p + m + 2 * v + (is_for_loop ? s : 3 * s);
  }
  if (p == 0) return;
  context_.work({.op = static_cast<OpId>(Op::fused_adam),
                 .kind = WorkKind::optimizer,
                 .dtype = group.parameters.front().tensor.dtype(),
                 .read = read,
                 .written = written});
}

void Optimizer::update(Group& group) {
  tell(group);
  if (config_.name == OptimizerName::sgd || config_.is_bitsandbytes()) return;  // in place
  if (config_.implementation == OptimizerImplementation::fused ||
      config_.implementation == OptimizerImplementation::deepspeed_fused)
    return;
  if (config_.implementation == OptimizerImplementation::foreach_) {
    // _multi_tensor_adam: exp_avg_sq_sqrt = torch._foreach_sqrt(...) is as large as the group.
    TensorList roots;  // a dtype's are bound until the next one's are there
    for (const std::vector<Parameter>& same_dtype : foreach_groups(group.parameters)) {
      TensorList next;
      next.reserve(same_dtype.size());
      for (const Parameter& parameter : same_dtype) {
        const ModuleScope scope(context_, parameter.module);
        next.push_back(empty_like(Op::foreach_sqrt, parameter.tensor));
      }
      roots = std::move(next);
    }
    return;
  }
  // _single_tensor_adam: denom = (exp_avg_sq.sqrt() / bias_correction2_sqrt).add_(eps); the last one stays bound.
  Tensor denominator;
  for (std::size_t i = 0; i < group.states.size(); ++i) {
    if (!group.parameters[i].tensor->grad) continue;
    const ModuleScope scope(context_, group.parameters[i].module);
    const Tensor root = empty_like(Op::sqrt, group.parameters[i].tensor);
    Tensor quotient = div_scalar(root);
    const Tensor last = std::exchange(denominator, std::move(quotient));
  }
}

void Optimizer::step_group(std::size_t index) {
  const NoGrad no_grad(context_);
  init_group(groups_[index]);
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
  if (config.name != OptimizerName::sgd) return 2;
  return config.momentum != 0 ? 1 : 0;
}

std::vector<std::vector<Parameter>> parameter_groups(const std::vector<Parameter>& parameters, std::int64_t groups) {
  std::vector<std::vector<Parameter>> result(static_cast<std::size_t>(groups));
  for (const Parameter& parameter : parameters)
    if (parameter.tensor->leaf_requires_grad) result[groups == 2 && !parameter.decays ? 1 : 0].push_back(parameter);
  std::erase_if(result, [](const std::vector<Parameter>& group) { return group.empty(); });
  return result;
}

std::vector<std::vector<Parameter>> foreach_groups(const std::vector<Parameter>& parameters) {
  std::vector<std::vector<Parameter>> groups;
  for (const Parameter& parameter : parameters) {
    if (!parameter.tensor->grad) continue;
    const auto has_dtype = [&](const std::vector<Parameter>& group) {
      return group.front().tensor.dtype() == parameter.tensor.dtype();
    };
    auto group = std::find_if(groups.begin(), groups.end(), has_dtype);
    if (group == groups.end()) group = groups.insert(groups.begin(), std::vector<Parameter>());
    group->push_back(parameter);
  }
  return groups;
}

Tensor clip_grad_norm(Context& context, const std::vector<Parameter>& parameters, bool are_sharded) {
  const NoGrad no_grad(context);
  TensorList norms;
  for (const std::vector<Parameter>& group : foreach_groups(parameters)) {
    constexpr std::int64_t kChunk = 65536;  // kChunkSize, ForeachFunctors / MultiTensorApply.cuh
    std::int64_t chunks = 0;
    for (const Parameter& parameter : group) chunks += (parameter.tensor->grad.numel() + kChunk - 1) / kChunk;
    // foreach_tensor_norm_cuda, ForeachReduceOp.cu: where each tensor's chunks begin, and a partial result a chunk.
    const Tensor offsets =
        empty(context, Op::foreach_norm, {static_cast<std::int64_t>(group.size()) + 1}, DType::int64);
    const Tensor partial = empty(context, Op::foreach_norm, {chunks}, DType::float32);
    for (const Parameter& parameter : group)
      norms.push_back(empty(context, Op::foreach_norm, {}, parameter.tensor->grad.dtype()));
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
