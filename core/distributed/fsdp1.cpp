#include "distributed/fsdp1.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "autograd/engine.h"
#include "distributed/broadcast.h"
#include "distributed/partition.h"
#include "distributed/saved_modules.h"
#include "nn/placement.h"
#include "ops/ops.h"
#include "rounding.h"
#include "sort_by.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

/// _init_streams: all-gathers, what comes before them (casting, copying from the host), reducing.
constexpr std::uint8_t kUnshardStream = 1, kPreUnshardStream = 2, kPostBackwardStream = 3;
/// _get_aligned_numel: pieces begin at 16 bytes where the original parameters are kept.
constexpr std::int64_t kAlignment = 16;

/// Elements of [begin, end) within part `rank` of a flat tensor that is cut into parts of `part`.
constexpr std::int64_t overlap(std::int64_t begin, std::int64_t end, std::int64_t part, std::int64_t rank) {
  return std::max<std::int64_t>(std::min(end, part * (rank + 1)) - std::max(begin, part * rank), 0);
}

void forget_history(const Tensor& tensor) {
  if (Node* node = std::exchange(tensor->grad_fn, nullptr)) release(node);
}

}  // namespace

FullyShardedDataParallel::FullyShardedDataParallel(Context& context, Model& model, const TrainingConfig& training,
                                                   const ParallelConfig& parallel)
    : TrainingStrategy(context, model, training),
      config_(parallel.fsdp),
      world_(parallel.world_size()),
      given_rank_(parallel.rank) {
  config_.sharding = config_.sharding_on(world_);
}

FullyShardedDataParallel::~FullyShardedDataParallel() {
  context_.forget(static_cast<BlockListener&>(*this));
  context_.forget(static_cast<ModuleListener&>(*this));
}

/// _init_param_reduce_dtypes
DType FullyShardedDataParallel::reduce_dtype(const Unit& unit) const {
  return config_.reduce_dtype.value_or(gathered_dtype(unit));
}

void FullyShardedDataParallel::share(const Tensor& tensor, const Unit& unit) {
  for (const Piece& piece : unit.pieces)
    if (piece.parameter) context_.share(tensor, piece.parameter->module, piece.numel);
}

/// A flat tensor of the unit: the whole, or this rank's part.
Tensor FullyShardedDataParallel::flat_tensor(Unit& unit, Op op, std::int64_t numel, DType dtype, Role role) {
  const ModuleScope scope(context_, unit.module);
  Tensor tensor = empty(context_, op, {numel}, dtype, role);
  if (numel >= unit.numel) {
    share(tensor, unit);
  } else {
    for (const Piece& piece : unit.pieces)
      if (piece.parameter) context_.share(tensor, piece.parameter->module, piece.in_shard);
  }
  return tensor;
}

// --- initialisation --------------------------------------------------------------------------------------------------

void FullyShardedDataParallel::initialize() {
  const NoGrad no_grad(context_);
  gather_units();
  if (!refusal_) check_reentrant_blocks();
  if (refusal_) return;
  rank_ = given_rank_ ? *given_rank_ : worst_rank();
  for (const std::size_t i : order_of_wrapping()) flatten(units_[i]);
  if (config_.by_accelerate && autocast_dtype(training_.precision))
    for (Unit& unit : units_) upcast(unit);
  if (config_.cpu_offload)
    for (const Unit& unit : units_) keep_on_host(unit);

  for (std::size_t i = 0; i < model_.parameters.size(); ++i)
    model_.parameters[i].tensor->index = static_cast<std::uint32_t>(i);
  std::vector<const Tensor*> shards(model_.parameters.size());
  std::vector<Parameter> local;
  for (const Unit& unit : units_) {
    if (!config_.use_orig_params && unit.flat->leaf_requires_grad)
      local.push_back({unit.local, unit.module, "_flat_param", true});
    for (const Piece& piece : unit.pieces)
      if (piece.parameter) shards[piece.parameter->tensor->index] = &piece.shard;
  }
  if (config_.use_orig_params)
    for (const Parameter& parameter : model_.parameters)
      if (const Tensor& shard = *shards[parameter.tensor->index])
        local.push_back({shard, parameter.module, parameter.name, parameter.decays});
  optimizer_ = make_optimizer(context_, training_.optimizer);
  for (std::vector<Parameter>& group : parameter_groups(local, training_.optimizer.param_groups))
    optimizer_->add_group(std::move(group));
  context_.listen(model_.root, static_cast<BlockListener&>(*this));
  if (std::any_of(units_.begin(), units_.end(), [](const Unit& unit) { return unit.is_leaf; }))
    context_.listen(model_.root, static_cast<ModuleListener&>(*this));
}

/// _auto_wrap: a module's children before itself, the model last.
std::vector<std::size_t> FullyShardedDataParallel::order_of_wrapping() const {
  const Log& log = context_.log;
  std::vector<ModuleId> last(log.modules.size());  // of the subtree
  for (ModuleId id = static_cast<ModuleId>(last.size()); id-- > 0;) {
    last[id] = std::max(last[id], id);
    if (id > 0) last[log.modules[id].parent] = std::max(last[log.modules[id].parent], last[id]);
  }
  std::vector<std::size_t> order(units_.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  sort_by(order, [&](std::size_t i) { return -std::int64_t{units_[i].module}; });
  sort_by(order, [&](std::size_t i) { return last[units_[i].module]; });
  return order;
}

/// _move_module_to_device: those of the unit's parameters that are on the host, the tree's upper levels first; of the
/// model the buffers, too.
void FullyShardedDataParallel::place(const Unit& unit) {
  const Log& log = context_.log;
  const auto depth = [&](const Parameter& parameter) {
    int levels = 0;
    for (ModuleId id = parameter.module; !log.is_root(id); id = log.modules[id].parent) ++levels;
    return levels;
  };
  std::vector<Parameter> parameters;
  for (const Piece& piece : unit.pieces)
    if (piece.parameter && !has_memory(piece.parameter->tensor)) parameters.push_back(*piece.parameter);
  sort_by(parameters, depth);
  for (const Parameter& parameter : parameters) {
    const ModuleScope scope(context_, parameter.module);
    const Tensor& tensor = parameter.tensor;
    replace_data(tensor, empty(context_, Op::parameter, tensor.sizes(), tensor.dtype(), Role::parameter));
  }
  if (unit.module != model_.root) return;
  for (const Buffer& buffer : model_.buffers) {
    if (has_memory(buffer.tensor)) continue;
    const ModuleScope scope(context_, buffer.module);
    replace_data(buffer.tensor,
                 empty(context_, Op::buffer, buffer.tensor.sizes(), buffer.tensor.dtype(), Role::buffer));
  }
}

/// Accelerator.prepare_model (accelerate 1.15): flat_param.data = flat_param.data.to(torch.float32). The original
/// parameters are views of the old one until the unit is sharded again.
void FullyShardedDataParallel::upcast(Unit& unit) {
  if (!unit.flat || !unit.flat->leaf_requires_grad || unit.dtype == DType::float32) return;
  const ModuleScope scope(context_, unit.module);
  unit.dtype = DType::float32;
  if (config_.cpu_offload) {  // on the host
    unit.local->dtype = unit.dtype;
  } else {
    unit.local = flat_tensor(unit, Op::to_copy, unit.local.numel(), unit.dtype, Role::parameter);
    unit.local->leaf_requires_grad = true;
    unit.has_old_shards = true;
  }
  for (Piece& piece : unit.pieces)
    if (piece.shard) piece.shard->dtype = unit.dtype;
}

void FullyShardedDataParallel::set_parameters_dtype(const Unit& unit, DType dtype) {
  for (const Piece& piece : unit.pieces)
    if (piece.parameter) piece.parameter->tensor->dtype = dtype;
}

/// A reentrant region's own backward gives its parameters their gradients: those of a unit around the block end that
/// unit's backward there (_post_backward_hook), and what runs after it finds no parameters. Where they are whole and in
/// their own type all the time, each block makes and adds the whole unit's gradient, which is not modelled.
void FullyShardedDataParallel::check_reentrant_blocks() {
  const CheckpointingConfig& checkpointing = training_.checkpointing;
  if (checkpointing.mode != CheckpointMode::reentrant) return;
  const Log& log = context_.log;
  const auto is_checkpointed = [&](ModuleId id) {
    const ModuleRecord& module = log.modules[id];
    if (module.index < 0 || (module.name != std::string_view("layers") && module.name != std::string_view("blocks")))
      return false;
    const auto has = [&](const StackSegments& stack) {
      return path_ends_with(log, id, stack.stack + "." + std::to_string(module.index));
    };
    return checkpointing.segments.empty() ||
           std::any_of(checkpointing.segments.begin(), checkpointing.segments.end(), has);
  };
  for (const Parameter& parameter : model_.parameters) {
    if (!parameter.tensor->leaf_requires_grad) continue;
    ModuleId id = parameter.module, block = model_.root;
    for (; !log.is_root(id) && !unit_of_.contains(id); id = log.modules[id].parent)
      if (is_checkpointed(id)) block = id;
    if (block == model_.root) continue;
    const Unit& unit = units_[unit_of_.at(id)];
    const bool stops = shards() || gathered_dtype(unit) != unit.dtype;
    refusal_ = Error{stops ? "inconsistent" : "not-modelled", "/training/activation_checkpointing",
                     std::string("found reentrant checkpoints around blocks (") + log.modules[block].type +
                         ") that are part of a larger FSDP unit, which " +
                         (stops ? "fails in backward" : "is not supported yet") +
                         "; expected non-reentrant ones, or the block's class in parallel.fsdp.wrap"};
    return;
  }
}

/// transformer_auto_wrap_policy: a unit for each module of a named class, and one for the model. Pieces lie in
/// named_parameters' order, aligned where the original parameters are kept (_init_flat_param_and_metadata).
void FullyShardedDataParallel::gather_units() {
  const std::vector<ModuleRecord>& modules = context_.log.modules;
  const ModuleId end = context_.log.end_of(model_.root);
  std::vector<ModuleId> wrapped(modules.size(), model_.root);
  units_.emplace_back().module = model_.root;
  unit_of_[model_.root] = 0;
  // peft's fsdp_auto_wrap_policy, lambda_policy_fn: modules without children whose weight is trained.
  std::vector<bool> is_leaf(modules.size(), false);
  if (config_.by_accelerate && training_.has_adapters())
    for (const Parameter& parameter : model_.parameters)
      if (parameter.name == std::string_view("weight") && parameter.tensor->leaf_requires_grad)
        is_leaf[parameter.module] = true;
  for (ModuleId id = model_.root + 1; id < end; ++id) is_leaf[modules[id].parent] = false;
  for (ModuleId id = model_.root + 1; id < end; ++id) {
    const bool wraps =
        is_leaf[id] || std::find(config_.wrap.begin(), config_.wrap.end(), modules[id].type) != config_.wrap.end();
    wrapped[id] = wraps ? id : wrapped[modules[id].parent];
    if (!wraps) continue;
    unit_of_[id] = units_.size();
    units_.emplace_back().module = id;
    units_.back().is_leaf = is_leaf[id];
  }
  refusal_ = check_shared(context_.log, model_, [&](ModuleId id) { return wrapped[id]; });
  std::vector<Parameter> parameters = model_.parameters;
  sort_by_module(parameters);
  put_originals_first(parameters, context_.log, training_,
                      [](const Parameter& parameter) -> const Parameter& { return parameter; });
  for (const Parameter& parameter : parameters) {
    Unit& unit = units_[unit_of_[wrapped[parameter.module]]];
    const Tensor& tensor = parameter.tensor;
    if (unit.pieces.empty()) unit.dtype = tensor.dtype();
    const auto trains = [](const Piece& piece) { return piece.parameter->tensor->leaf_requires_grad; };
    if (refusal_) break;
    if (!is_floating_point(tensor.dtype()))
      refusal_ = Error{"inconsistent", "/training/quantization/bnb_4bit_quant_storage",
                       "found packed weights of integers, which FSDP1 cannot flatten; expected \"bfloat16\", as norms "
                       "and adapters beside them"};
    else if (tensor.dtype() != unit.dtype && training_.quantization && training_.quantization->prepares)
      refusal_ = Error{"inconsistent", "/training/quantization/prepare_model_for_kbit_training",
                       "found norms of fp32 beside packed weights of another dtype in an FSDP unit, which FSDP cannot "
                       "flatten; expected false, as where FSDP is used, or bnb_4bit_quant_storage \"float32\""};
    else if (tensor.dtype() != unit.dtype)
      refusal_ =
          Error{"inconsistent", adapter_type_pointer(training_),
                "found an FSDP unit with parameters of two dtypes, which FSDP cannot flatten; expected one dtype "
                "(autocast_adapter_dtype false, or training.precision fp32), or fsdp2"};
    if (!config_.use_orig_params && !unit.pieces.empty() && trains(unit.pieces.front()) != tensor->leaf_requires_grad)
      refusal_ =
          Error{"inconsistent", "/parallel/fsdp/use_orig_params",
                "found an FSDP unit with trained and frozen parameters, which FSDP flattens only with use_orig_params; "
                "expected true"};
    if (config_.use_orig_params) {
      const std::int64_t aligned = kAlignment / element_size(gathered_dtype(unit));
      if (const std::int64_t over = unit.numel % aligned; over != 0) {
        unit.pieces.push_back({{}, aligned - over});
        unit.numel += aligned - over;
      }
    }
    unit.pieces.push_back({parameter, tensor.numel()});
    unit.numel += tensor.numel();
  }
  // peft casts what an adapter is called with to the type of its shard (BaseTunerLayer._cast_input_dtype).
  for (const Unit& unit : units_)
    if (unit.is_leaf && gathered_dtype(unit) != unit.dtype && !autocast_dtype(training_.precision))
      refusal_ = Error{"inconsistent", "/training/precision",
                       "found adapters of " + std::string(dtype_name(unit.dtype)) + " that FSDP gathers as " +
                           dtype_name(gathered_dtype(unit)) +
                           ", the type of the packed weights, without autocast: F.linear stops at two dtypes; expected "
                           "bf16 among the trainer's arguments, or adapters of that type"};
  std::erase_if(units_, [&](const Unit& unit) { return unit.pieces.empty() && unit.module != model_.root; });
  for (Unit& unit : units_) {
    unit_of_[unit.module] = static_cast<std::size_t>(&unit - units_.data());
    if (const std::int64_t over = unit.numel % world_; config_.use_orig_params && over != 0) {
      unit.pieces.push_back({{}, world_ - over});
      unit.numel += world_ - over;
    }
    unit.shard = shards() ? divide_up(unit.numel, world_) : unit.numel;
  }
}

/// _get_shard_metadata
void FullyShardedDataParallel::take_shares(Unit& unit, std::int64_t rank) {
  std::int64_t offset = 0;
  for (Piece& piece : unit.pieces) {
    piece.in_shard = shards() ? overlap(offset, offset + piece.numel, unit.shard, rank) : piece.numel;
    offset += piece.numel;
  }
}

/// The rank whose optimizer keeps most: the flat parameters' parts are as large on every rank, but not all of each is
/// trained.
std::int64_t FullyShardedDataParallel::worst_rank() {
  if (!config_.use_orig_params || !shards()) return 0;
  std::int64_t worst = 0, most = -1;
  for (std::int64_t rank = 0; rank < world_; ++rank) {
    std::int64_t bytes = 0;
    for (Unit& unit : units_) {
      take_shares(unit, rank);
      for (const Piece& piece : unit.pieces)
        if (piece.parameter && piece.parameter->tensor->leaf_requires_grad)
          bytes += Context::rounded(piece.in_shard * element_size(unit.dtype));
    }
    if (bytes <= most) continue;
    most = bytes;
    worst = rank;
  }
  return worst;
}

std::vector<std::int64_t> FullyShardedDataParallel::ranks_that_differ() const {
  if (!shards()) return {};
  if (config_.use_orig_params) return ranks_to_try(world_, rank_);
  // Flat parameters are as large on every rank; the last one's are padded when they are made.
  for (const Unit& unit : units_)
    if (unit.shard * world_ != unit.numel) return {0, world_ - 1};
  return {};
}

/// FlatParamHandle.__init__ and shard(): the flat parameter is made, this rank's part of it copied, and the originals
/// go.
void FullyShardedDataParallel::flatten(Unit& unit) {
  if (unit.pieces.empty()) return;
  take_shares(unit, rank_);
  if (config_.by_accelerate) place(unit);
  const ModuleScope scope(context_, unit.module);
  bool trains = false;
  TensorList states;
  for (const Piece& piece : unit.pieces) {
    if (!piece.parameter) continue;
    trains = trains || piece.parameter->tensor->leaf_requires_grad;
    states.push_back(piece.parameter->tensor);
  }
  if (config_.sync_module_states) {
    TensorList all;
    if (unit.module == model_.root)
      for (const Tensor& buffer : model_.buffers) all.push_back(buffer);
    for (const Tensor& state : states) all.push_back(state);
    broadcast_coalesced(context_, all, world_);
  }
  TensorList paddings;  // _construct_padding_tensor
  for (const Piece& piece : unit.pieces) {
    if (piece.parameter) continue;
    const Tensor ones = empty(context_, Op::ones_like, {piece.numel}, unit.dtype);
    paddings.push_back(mul_scalar(ones));
  }
  Tensor whole = flat_tensor(unit, Op::cat, unit.numel, unit.dtype, Role::parameter);
  paddings.clear();
  if (shards()) {
    // _get_shard: the last ranks' parts are padded, where the whole is not.
    const std::int64_t end = std::min(unit.numel, unit.shard * (rank_ + 1));
    const std::int64_t own = std::max<std::int64_t>(end - unit.shard * rank_, 0);
    Tensor part = flat_tensor(unit, Op::clone, own, unit.dtype, Role::parameter);
    if (own < unit.shard) part = flat_tensor(unit, Op::constant_pad_nd, unit.shard, unit.dtype, Role::parameter);
    unit.local = std::move(part);
    whole.reset();
  } else {
    unit.local = std::move(whole);
  }
  const Storage none = context_.allocate(Op::none, 0, unit.dtype, {}, Role::parameter);
  unit.gathered = on_storage(none, {unit.numel}, {1}, gathered_dtype(unit));
  unit.flat = on_storage(none, {unit.numel}, {1}, gathered_dtype(unit));
  unit.flat->leaf_requires_grad = trains;
  const bool mixed = gathered_dtype(unit) != unit.dtype;
  if (!shards() && !mixed && !config_.cpu_offload) unit.gathered = unit.local;
  for (Piece& piece : unit.pieces) {
    if (!piece.parameter) continue;
    const Tensor& tensor = piece.parameter->tensor;
    if (config_.use_orig_params) set_data(tensor, unit.gathered);  // _use_sharded_views, one by one
    tensor->dtype = unit.is_leaf ? unit.dtype : gathered_dtype(unit);
    if (!config_.use_orig_params || !tensor->leaf_requires_grad || piece.in_shard == 0) continue;
    piece.shard = alias(unit.local, {piece.in_shard}, {1});
    piece.shard->leaf_requires_grad = true;
  }
  while (!config_.use_orig_params && !states.empty()) {  // a list of them dies
    set_data(states.back(), unit.gathered);
    states.pop_back();
  }
  unit.local->leaf_requires_grad = trains;
  if (!config_.cpu_offload) return;
  const Storage on_host = context_.allocate(Op::none, 0, unit.dtype, {}, Role::parameter);
  for (const Piece& piece : unit.pieces)
    if (piece.shard) set_data(piece.shard, on_host);
  set_data(unit.local, on_host);
}

/// cpu_offload: init_flat_param_attributes pins the rank's part and its gradient (_cpu_grad); the optimizer's states
/// lie beside them.
void FullyShardedDataParallel::keep_on_host(const Unit& unit) {
  if (unit.pieces.empty()) return;
  host_.keep(HostPart::parameters, unit.local.nbytes(), true);
  host_.keep(HostPart::gradients, unit.local.nbytes(), true);
  const auto keep_states_of = [&](const Tensor& part) {
    host_.keep(HostPart::optimizer_states, checked_product(part.nbytes(), states_per_parameter(training_.optimizer)));
  };
  for (const Piece& piece : unit.pieces)
    if (piece.shard) keep_states_of(piece.shard);
  if (!config_.use_orig_params && unit.local->leaf_requires_grad) keep_states_of(unit.local);
}

/// _lazy_init, in the first forward: buffers are cast; the tensors that are to be gathered into are made, and their
/// memory is freed until then (init_flat_param_attributes).
void FullyShardedDataParallel::lazy_init() {
  initialized_ = true;
  if (config_.buffer_dtype)
    for (const Tensor& buffer : model_.buffers) {
      if (!is_floating_point(buffer.dtype()) || buffer.dtype() == *config_.buffer_dtype) continue;
      const ModuleId owner = context_.record(buffer)->module;
      replace_data(buffer, to(buffer, *config_.buffer_dtype));
      context_.set_role(buffer, Role::buffer, owner);
    }
  for (const Unit& unit : units_) {
    if (unit.pieces.empty()) continue;
    const ModuleScope scope(context_, unit.module);
    const DType dtype = gathered_dtype(unit);
    const auto made = [&](std::int64_t numel, DType of) { empty(context_, Op::empty, {numel}, of, Role::parameter); };
    if (dtype != unit.dtype) made(unit.shard, dtype);
    if (!shards()) continue;
    made(checked_product(unit.shard, world_), dtype);
    if (dtype != unit.dtype) made(checked_product(unit.shard, world_), unit.dtype);
  }
}

// --- gathering -------------------------------------------------------------------------------------------------------

/// _unshard: pre_unshard (the part is cast, or copied from the host), unshard, post_unshard.
void FullyShardedDataParallel::unshard(Unit& unit) {
  const ModuleScope scope(context_, unit.module);
  const DType dtype = gathered_dtype(unit);
  const bool mixed = dtype != unit.dtype;
  const auto fill = [&](std::int64_t numel) {
    context_.allocate_storage(*unit.gathered->storage, Op::empty, checked_product(numel, element_size(dtype)), dtype,
                              {numel}, Role::parameter);
    share(unit.gathered, unit);
  };
  const bool gathers = !has_memory(unit.gathered);
  if (!shards()) {
    const Scoped<std::uint8_t> stream(context_.stream, kPreUnshardStream);
    if (gathers) fill(unit.numel);
  } else if (gathers || config_.cpu_offload) {
    Tensor part;
    {
      const Scoped<std::uint8_t> stream(context_.stream, kPreUnshardStream);
      if (mixed) part = empty(context_, Op::empty, {unit.shard}, dtype, Role::parameter);
      if (config_.cpu_offload) {
        Tensor copy = empty(context_, Op::to_copy, {unit.shard}, unit.dtype, Role::parameter);
        // The original parameters are views of it until they are views of the host's again.
        if (!mixed) (config_.use_orig_params ? unit.on_device : part) = std::move(copy);
      }
    }
    const Scoped<std::uint8_t> stream(context_.stream, kUnshardStream);
    if (gathers) {
      fill(checked_product(unit.shard, world_));
      collective(context_, Op::all_gather, unit.gathered->storage->bytes, dtype, world_);
      if (unit.on_device) context_.record_stream(unit.on_device, kUnshardStream);
    }
    if (part && (gathers || mixed)) context_.record_stream(part, kUnshardStream);
  }
  unit.is_sharded = false;
  if (unit.is_leaf) set_parameters_dtype(unit, dtype);
  if (unit.state == State::forward) use_views(unit);
}

/// _use_unsharded_views: the model's parameters are views of the flat parameter, as torch.split gives them.
void FullyShardedDataParallel::use_views(Unit& unit) {
  const Scoped<bool> enable_grad(context_.grad_mode, true);
  const Scoped<std::uint8_t> stream(context_.stream, kUnshardStream);
  Record record(Op::split, nullptr, {&unit.flat});
  if (!record) return;
  record->custom =
      std::make_unique<std::function<void(Backward&)>>([this, &unit](Backward& b) { flat_gradient(unit, b); });
  for (const Piece& piece : unit.pieces) {
    if (!piece.parameter) continue;
    forget_history(piece.parameter->tensor);
    record.output(piece.parameter->tensor);
  }
}

/// _reshard
void FullyShardedDataParallel::reshard(Unit& unit, bool free) {
  const ModuleScope scope(context_, unit.module);
  unit.is_sharded = true;
  unit.skipped_views = config_.use_orig_params && context_.grad_mode && unit.state == State::forward &&
                       config_.sharding == FsdpConfig::Sharding::shard_grad_op;
  if (!unit.skipped_views) unit.on_device.reset();
  // Of which peft looks at a weight's. Without the original parameters a module keeps its view of what was gathered.
  if (unit.is_leaf && config_.use_orig_params) set_parameters_dtype(unit, unit.dtype);
  if (!unit.skipped_views && std::exchange(unit.has_old_shards, false))
    for (const Piece& piece : unit.pieces)  // _use_sharded_views
      if (piece.shard) set_data(piece.shard, unit.local);
  // NO_SHARD's own low-precision copy goes too (post_reshard).
  if ((free || !shards()) && unit.gathered->storage != unit.local->storage && has_memory(unit.gathered)) {
    context_.record_stream(unit.gathered, context_.stream);
    context_.free_storage(*unit.gathered->storage);
  }
  unit.prefetched = false;
}

/// _prefetch_handle
void FullyShardedDataParallel::prefetch(Unit& unit) {
  const bool backward = unit.state != State::forward;
  Unit* target = nullptr;
  if (backward) {
    const auto wanted =
        unit.state == State::backward_pre ? FsdpConfig::BackwardPrefetch::pre : FsdpConfig::BackwardPrefetch::post;
    if (config_.backward_prefetch != wanted || unit.post_forward_index.value_or(0) == 0) return;
    target = &units_[post_forward_order_[*unit.post_forward_index - 1]];
    if (!target->needs_pre_backward_unshard) return;
  } else {
    if (!config_.forward_prefetch || !unit.pre_forward_index) return;
    if (*unit.pre_forward_index + 1 >= pre_forward_order_.size()) return;
    target = &units_[pre_forward_order_[*unit.pre_forward_index + 1]];
    if (!target->needs_pre_forward_unshard) return;
  }
  if (target->prefetched) return;
  {
    const Scoped<State> state(target->state, backward ? State::backward_pre : State::forward);
    unshard(*target);
  }
  target->prefetched = true;
}

// --- hooks -----------------------------------------------------------------------------------------------------------

/// `tensor` as the result of an operator that does nothing, whose backward calls `member` and hands its gradient on.
Tensor FullyShardedDataParallel::hook(const Tensor& tensor, void (FullyShardedDataParallel::*member)(Unit&),
                                      Unit& unit) {
  Record record(Op::none, nullptr, {&tensor});
  if (!record) return tensor;
  record->custom = std::make_unique<std::function<void(Backward&)>>([this, member, &unit](Backward& b) {
    (this->*member)(unit);
    b.give(0, std::move(b.grads[0]));
  });
  return record.output(detach(tensor));
}

/// _register_pre_backward_hooks
Tensor FullyShardedDataParallel::hook_output(Tensor output, Unit& unit) {
  if (!context_.grad_mode || !output.requires_grad()) return output;
  unit.needs_pre_backward_unshard = true;
  output = hook(output, &FullyShardedDataParallel::output_gradient, unit);
  unit.output = output.get();
  return output;
}

/// The hooks on a unit's output, as they were registered: its own, and that of a frozen unit that takes it.
void FullyShardedDataParallel::output_gradient(Unit& unit) {
  pre_backward(unit);
  if (Unit* taker = std::exchange(unit.frozen_taker, nullptr)) reshard_only(*taker);
}

void FullyShardedDataParallel::pre_forward(Unit& unit) {
  if (unit.pieces.empty()) return;
  const std::size_t index = static_cast<std::size_t>(&unit - units_.data());
  unit.state = State::forward;
  if (first_iteration_ && !unit.pre_forward_index) {
    unit.pre_forward_index = pre_forward_order_.size();
    pre_forward_order_.push_back(index);
  }
  if (!unit.prefetched) unshard(unit);
  unit.needs_pre_forward_unshard = false;
  prefetch(unit);
}

void FullyShardedDataParallel::post_forward(Unit& unit) {
  if (unit.pieces.empty()) return;
  const std::size_t index = static_cast<std::size_t>(&unit - units_.data());
  if (unit.post_forward_index.value_or(0) == 0) {  // as ExecOrderData.record_post_forward tests it
    unit.post_forward_index = post_forward_order_.size();
    post_forward_order_.push_back(index);
  }
  reshard(unit, index != 0 && reshards_after_forward());
  if (context_.grad_mode) unit.needs_pre_backward_unshard = unit.ran_pre_backward = false;
  unit.state = State::idle;
}

void FullyShardedDataParallel::pre_backward(Unit& unit) {
  if (unit.ran_pre_backward) return;  // another output's gradient came first
  if (&unit == &units_.front()) reset_gradients();
  if (unit.pieces.empty()) return;
  unit.state = State::backward_pre;
  if (unit.needs_pre_backward_unshard && !unit.prefetched) unshard(unit);
  unit.needs_pre_backward_unshard = false;
  prefetch(unit);
  unit.ran_pre_backward = true;
}

/// SplitWithSizesBackward: gradients end to end, zeros where there is none. Then
/// the flat parameter's AccumulateGrad, and the hook that hangs on it.
void FullyShardedDataParallel::flat_gradient(Unit& unit, Backward& b) {
  const DType dtype = gathered_dtype(unit);
  Tensor flat;
  {
    std::vector<Tensor> zeros;
    unsigned i = 0;
    for (const Piece& piece : unit.pieces) {
      Tensor* gradient = piece.parameter ? &b.grads[i++] : nullptr;
      if (gradient && *gradient) {
        // ViewBackward: a row of elements has their order.
        if (!gradient->is_contiguous())
          *gradient = empty(context_, Op::clone, gradient->sizes(), gradient->dtype(), Role::gradient);
        context_.record_stream(*gradient, kUnshardStream);
      } else
        zeros.push_back(empty(context_, Op::zeros, {piece.numel}, dtype));
    }
    flat = flat_tensor(unit, Op::cat, unit.numel, dtype, Role::gradient);
    for (Tensor& zero : zeros) zero.reset();
  }
  b.grads.clear();
  if (unit.flat->grad)
    add_(unit.flat->grad, flat);
  else
    unit.flat->grad = detach(flat);
  post_backward(unit, flat);
}

/// _post_backward_hook
void FullyShardedDataParallel::post_backward(Unit& unit, const Tensor& computed) {
  unit.post_backward_called = true;
  unit.state = State::backward_post;
  post_backward_reshard(unit);
  if (!syncs_) {
    if (config_.use_orig_params) use_gradient_views(unit);
    return;
  }
  const Scoped<std::uint8_t> stream(context_.stream, kPostBackwardStream);
  Tensor& gradient = unit.flat->grad;
  const Tensor autograd_computed = detach(gradient);
  if (const DType dtype = reduce_dtype(unit); gradient.dtype() != dtype) {
    replace_data(gradient, to(gradient, dtype));
    share(gradient, unit);
  }
  context_.set_role(gradient, Role::gradient, unit.module);
  reduce_gradient(unit);
  context_.record_stream(computed, kPostBackwardStream);
}

/// _reduce_grad, or _reduce_grad_no_shard
void FullyShardedDataParallel::reduce_gradient(Unit& unit) {
  const auto cast_to_own = [&](Tensor& gradient) {  // _cast_grad_to_param_dtype
    if (gradient.dtype() == unit.dtype) return;
    gradient = to(gradient, unit.dtype);
    share(gradient, unit);
  };
  if (!shards()) {
    collective(context_, Op::all_reduce, unit.flat->grad.nbytes(), unit.flat->grad.dtype(), world_);
    cast_to_own(unit.flat->grad);
    context_.set_role(unit.flat->grad, Role::gradient, unit.module);
    use_gradient_views(unit);
    return;
  }
  Tensor whole = std::move(unit.flat->grad), padded = whole;
  if (unit.shard * world_ > unit.numel)
    padded = flat_tensor(unit, Op::constant_pad_nd, unit.shard * world_, whole.dtype(), Role::gradient);
  Tensor part = flat_tensor(unit, Op::empty, unit.shard, whole.dtype(), Role::gradient);
  collective(context_, Op::reduce_scatter, padded.nbytes(), whole.dtype(), world_);
  cast_to_own(part);
  context_.set_role(part, Role::gradient, unit.module);
  if (unit.saved)
    add_(unit.saved, part);
  else
    unit.saved = part;
  use_gradient_views(unit);
  whole.reset();
  padded.reset();
}

/// _use_unsharded_grad_views under no_sync, _use_sharded_grad_views otherwise: what the original parameters have for
/// gradients. Where shapes or dtypes differ, a gradient is made as the parameter is and then given other data.
void FullyShardedDataParallel::use_gradient_views(Unit& unit) {
  if (!config_.use_orig_params) return;
  for (Piece& piece : unit.pieces) {
    if (!piece.parameter) continue;
    if (syncs_) {
      piece.has_grad = piece.shard && piece.in_shard > 0;
      continue;
    }
    const Tensor& full = piece.parameter->tensor;
    const bool fits = shards() && full.ndim() == 1 && piece.in_shard == full.numel() && unit.dtype == full.dtype();
    if (!fits && !piece.has_grad && !config_.cpu_offload) {
      const ModuleScope scope(context_, piece.parameter->module);
      const Tensor made = empty(context_, Op::empty, {piece.in_shard}, unit.dtype);
    }
    piece.has_grad = true;
  }
}

void FullyShardedDataParallel::post_backward_reshard(Unit& unit) {
  reshard(unit, shards() && (syncs_ || reshards_after_forward()));
  prefetch(unit);
}

void FullyShardedDataParallel::reshard_only(Unit& unit) {
  unit.state = State::backward_post;
  post_backward_reshard(unit);
}

/// _post_backward_final_callback
void FullyShardedDataParallel::final_callback() {
  first_iteration_ = false;
  post_forward_order_.clear();
  for (Unit& unit : units_) {
    if (unit.pieces.empty()) continue;
    if (!unit.is_sharded || unit.skipped_views) reshard(unit, shards() && (syncs_ || reshards_after_forward()));
    for (const Piece& piece : unit.pieces)
      if (piece.parameter) forget_history(piece.parameter->tensor);
    if (unit.flat->leaf_requires_grad && syncs_) {
      // prepare_gradient_for_optim
      if (unit.saved && unit.post_backward_called && !config_.cpu_offload) unit.flat->grad = unit.saved;
      if (config_.cpu_offload) unit.flat->grad.reset();
      unit.saved.reset();
      unit.post_backward_called = false;
    }
    unit.ran_pre_backward = unit.needs_pre_backward_unshard = unit.prefetched = false;
    unit.post_forward_index.reset();
    unit.output = nullptr;
    unit.state = State::idle;
  }
}

/// _reset_flat_param_grad_info_if_needed: the flat gradient goes only when the next forward, or a state_dict, finds
/// that the original parameters have none.
void FullyShardedDataParallel::reset_gradients() {
  if (!config_.use_orig_params) return;
  for (Unit& unit : units_) {
    const bool none = std::none_of(unit.pieces.begin(), unit.pieces.end(), [](const Piece& p) { return p.has_grad; });
    if (none && unit.flat) unit.flat->grad.reset();
  }
}

// --- the step --------------------------------------------------------------------------------------------------------

void FullyShardedDataParallel::before_forward(ModuleId module) {
  Unit& unit = units_[unit_of_.at(module)];
  if (context_.stopped || unit.state == State::backward_pre) return;
  pre_forward(unit);
}

/// A recomputation that stops within the module does not come here.
void FullyShardedDataParallel::after_forward(ModuleId module) {
  Unit& unit = units_[unit_of_.at(module)];
  if (context_.stopped || unit.state == State::backward_pre) return;
  post_forward(unit);
  unit.needs_pre_backward_unshard = context_.grad_mode;
}

Tensor FullyShardedDataParallel::before_block(ModuleId block, Tensor input) {
  const auto found = unit_of_.find(block);
  if (found == unit_of_.end()) return input;
  Unit& unit = units_[found->second];
  pre_forward(unit);
  if (unit.flat->leaf_requires_grad || !context_.grad_mode) return input;
  // _register_post_backward_reshard_only_hook
  const std::size_t index = found->second;
  if (index > 1 && units_[index - 1].output == input.get()) {
    units_[index - 1].frozen_taker = &unit;
    return input;
  }
  return hook(input, &FullyShardedDataParallel::reshard_only, unit);
}

Tensor FullyShardedDataParallel::after_block(ModuleId block, Tensor output) {
  const auto found = unit_of_.find(block);
  if (found == unit_of_.end()) return output;
  Unit& unit = units_[found->second];
  post_forward(unit);
  return hook_output(std::move(output), unit);
}

void FullyShardedDataParallel::before_forward(ModelInputs& inputs, bool last_micro_step) {
  if (refusal_) return;
  syncs_ = last_micro_step;
  const ModuleScope scope(context_, model_.root);
  if (!initialized_) lazy_init();
  if (config_.forward_prefetch)
    for (Unit& unit : units_) {
      unit.needs_pre_forward_unshard = true;
      unit.prefetched = false;
    }
  reset_gradients();
  if (config_.param_dtype) input_cast_.apply(inputs, *config_.param_dtype);
  pre_forward(units_.front());
}

void FullyShardedDataParallel::after_forward(ModelOutputs& outputs) {
  post_forward(units_.front());
  for (Tensor* output : outputs.all()) *output = hook_output(*output, units_.front());
  input_cast_.undo();
}

void FullyShardedDataParallel::backward(const Tensor& loss, bool) {
  // Tensor.backward holds it until the engine's final callback has run.
  const Tensor gradient = empty(context_, Op::ones_like, loss.sizes(), loss.dtype());
  autograd::backward(loss, gradient);
  const NoGrad no_grad(context_);
  final_callback();
}

/// model.state_dict() of FULL_STATE_DICT with offload_to_cpu (torch/distributed/fsdp/_state_dict_utils.py): each unit
/// is gathered in its full precision and moved to the host before the next one is. What is gathered of the optimizer's
/// states is not counted.
void FullyShardedDataParallel::save() {
  if (!shards()) return;
  const NoGrad no_grad(context_);
  reset_gradients();
  for (const Unit& unit : units_) {
    const ModuleScope scope(context_, unit.module);
    Tensor part;
    if (config_.cpu_offload && config_.use_orig_params)
      part = empty(context_, Op::to_copy, {unit.shard}, unit.dtype, Role::parameter);
    const Tensor full = empty(context_, Op::empty, {checked_product(unit.shard, world_)}, unit.dtype, Role::parameter);
    collective(context_, Op::all_gather, full.nbytes(), unit.dtype, world_);
  }
}

void FullyShardedDataParallel::step() {
  for (Unit& unit : units_)
    for (Piece& piece : unit.pieces) piece.has_grad = false;
  if (config_.cpu_offload) {  // the CPU's
    if (training_.max_grad_norm) find_norm_on_host();
    return;
  }
  for (Unit& unit : units_) {
    const Tensor& gradient = unit.flat ? unit.flat->grad : zero_;
    if (!unit.flat || !gradient) continue;
    if (!config_.use_orig_params) unit.local->grad = gradient;
    for (Piece& piece : unit.pieces)
      if (piece.shard) piece.shard->grad = alias(gradient, piece.shard.sizes(), piece.shard.strides());
  }
  if (training_.max_grad_norm) clip_grad_norm();
  optimizer_->step();
  if (!config_.use_orig_params)
    for (Unit& unit : units_)
      if (unit.flat) unit.flat->grad.reset();
  optimizer_->zero_grad();
}

/// FullyShardedDataParallel.clip_grad_norm_ of gradients on the host: their norm alone comes to the device, where the
/// ranks' are added, and goes back.
void FullyShardedDataParallel::find_norm_on_host() {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  if (!zero_) zero_ = empty(context_, Op::zeros, {}, DType::float32);
  const Tensor local = empty(context_, Op::to_copy, {}, DType::float32);
  Tensor total = empty_like(Op::pow, local);
  total = empty_like(Op::pow, total);
}

/// FullyShardedDataParallel.clip_grad_norm_: a norm of each gradient, one after the other, in float32.
void FullyShardedDataParallel::clip_grad_norm() {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  if (!zero_) zero_ = empty(context_, Op::zeros, {}, DType::float32);
  TensorList gradients;
  for (const Unit& unit : units_) {
    if (!config_.use_orig_params && unit.local && unit.local->grad) gradients.push_back(unit.local->grad);
    for (const Piece& piece : unit.pieces)
      if (config_.use_orig_params && piece.shard && piece.shard->grad) gradients.push_back(piece.shard->grad);
  }
  if (gradients.empty()) return;
  if (!shards()) {
    std::vector<Parameter> parameters;
    for (const Unit& unit : units_) {
      if (!config_.use_orig_params && unit.local) parameters.push_back({unit.local, unit.module});
      for (const Piece& piece : unit.pieces)
        if (config_.use_orig_params && piece.shard) parameters.push_back({piece.shard, piece.parameter->module});
    }
    Tensor norm = oometer::clip_grad_norm(context_, parameters);
    if (grad_norm.is_held) grad_norm.value = std::move(norm);
    return;
  }
  Tensor local;
  {
    TensorList norms;
    for (const Tensor& gradient : gradients)
      norms.push_back(reduce(Op::linalg_vector_norm, gradient, {0}, false, DType::float32));
    const Tensor stacked = empty(context_, Op::stack, {static_cast<std::int64_t>(norms.size())}, DType::float32);
    norms.clear();
    local = reduce(Op::linalg_vector_norm, stacked, {0}, false, DType::float32);
  }
  Tensor total = empty_like(Op::pow, local);
  total = empty_like(Op::pow, total);
  Tensor coefficient;
  {
    const Tensor padded = add_scalar(total);
    const Tensor inverse = empty_like(Op::reciprocal, padded);
    coefficient = mul_scalar(inverse);
  }
  const Tensor clamped = empty_like(Op::clamp, coefficient);
  for (const Tensor& gradient : gradients)
    if (gradient.dtype() != DType::float32) const Tensor cast = to(clamped, gradient.dtype());
  const Tensor returned = to(total, gradients.front().dtype());
  if (grad_norm.is_held) grad_norm.value = returned;
}

}  // namespace oometer
