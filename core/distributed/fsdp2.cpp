#include "distributed/fsdp2.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

#include "autograd/engine.h"
#include "distributed/saved_modules.h"
#include "nn/placement.h"
#include "ops/ops.h"
#include "rounding.h"
#include "sort_by.h"
#include "tensor/kernel.h"
#include "tensor/node.h"
#include "train/recipe_clip.h"

namespace oometer {

namespace {

/// FSDPCommContext's: copying in for an all-gather, and reducing.
constexpr std::uint8_t kCopyInStream = 1, kReduceScatterStream = 2;
/// ATen/native/cuda/TensorShape.cu: 128 threads that copy 16 bytes each.
constexpr std::int64_t kThreads = 128, kBytesPerBlock = 16 * kThreads;

/// split_with_sizes_copy_out_cuda_contiguous_no_cast packs what its blocks have to know: `chunks` are bytes of each
/// tensor's shard.
std::int64_t split_metadata(const Device& device, const std::vector<std::int64_t>& chunks, std::int64_t world) {
  std::int64_t blocks = 0;
  for (const std::int64_t chunk : chunks) blocks += divide_up(chunk, kBytesPerBlock);
  const std::int64_t most = device.sm_count * max_threads_per_sm(device) / kThreads * 2;
  const std::int64_t factor = divide_up(blocks * world, most);
  const auto root = static_cast<std::int64_t>(std::ceil(std::sqrt(static_cast<double>(factor))));
  const std::int64_t iterations = divide_up(factor, std::min(root, world));
  blocks = 0;
  for (const std::int64_t chunk : chunks) blocks += divide_up(chunk, kBytesPerBlock * iterations);
  return 4 * static_cast<std::int64_t>(chunks.size()) + 1 + blocks;
}

/// _chunk_cat_out_cuda_contiguous, likewise. `is_mixed`: fsdp::chunk_cat_mixed_dtype of gradients of two dtypes, as the
/// allocator saw it.
std::int64_t chunk_cat_metadata(const std::vector<std::int64_t>& chunks, bool is_mixed) {
  std::int64_t blocks = 0;
  for (const std::int64_t chunk : chunks) blocks += divide_up(chunk, kBytesPerBlock);
  return 6 * static_cast<std::int64_t>(chunks.size()) + (is_mixed ? 0 : 2) + blocks;
}

/// Whether it is the A, B or magnitudes of a LoRA layer (_process_lora_module_for_fsdp, axolotl 0.19).
bool is_adapter(const ModuleRecord& module) {
  const std::string_view name = module.name;
  return name.starts_with("lora_A.") || name.starts_with("lora_B.") || name.starts_with("lora_magnitude_vector.");
}

}  // namespace

FullyShard::FullyShard(Context& context, Model& model, const TrainingConfig& training, const ParallelConfig& parallel,
                       std::uint8_t root)
    : TrainingStrategy(context, model, training),
      config_(parallel.fsdp),
      root_(root),
      world_(parallel.world_size()),
      rank_(parallel.rank.value_or(0)) {}  // no rank has more rows than the first

FullyShard::~FullyShard() {
  context_.forget(static_cast<const ModuleListener&>(*this));
  context_.forget(static_cast<const GradientListener&>(*this));
}

DType FullyShard::gathered_dtype(const Shard& shard) const {
  const DType own = shard.local.dtype();
  return is_floating_point(own) ? config_.param_dtype.value_or(own) : own;
}

/// FSDPParam.unsharded_grad_dtype: gradients that wait for others are kept as they will be reduced.
DType FullyShard::accumulated_dtype(const Shard& shard) const {
  return config_.reduce_dtype.value_or(shard.local.dtype());
}

// --- initialisation --------------------------------------------------------------------------------------------------

/// fully_shard(embeddings), then of [final norm, head], to which the embeddings belong where they are the head's, too
/// (fsdp2_prepare_model, accelerate 1.15, utils/fsdp_utils.py). The norm is a child of the base model, which peft's
/// model does not find.
void FullyShard::make_accelerates_groups(std::vector<ModuleId>& wrapped) {
  const std::vector<ModuleRecord>& modules = context_.log.modules;
  const ModuleId end = context_.log.end_of(model_.root);
  const auto named = [&](std::string_view name) {
    for (ModuleId id = model_.root + 1; id < end; ++id)
      if (modules[id].name == name && modules[id].index < 0) return id;
    return model_.root;
  };
  const ModuleId embeddings = named("embed_tokens"), head = named("lm_head");
  if (embeddings == model_.root || head == model_.root || !saved_modules(context_.log, training_).empty()) {
    refusal_ = Error{"not-modelled", "/parallel/strategy",
                     "found FSDP2 under a trainer with a model whose embeddings and head are not modules of their own, "
                     "which is not supported yet; expected ddp, deepspeed or fsdp1"};
    return;
  }
  const bool is_tied = std::none_of(model_.parameters.begin(), model_.parameters.end(),
                                    [&](const Parameter& p) { return p.module == head; });
  std::vector<ModuleId> tail;
  for (ModuleId id = model_.root + 1; id < end && !training_.has_adapters(); ++id) {
    const ModuleRecord& parent = modules[modules[id].parent];
    const bool is_in_base = parent.name == std::string_view("model") && context_.log.is_root(parent.parent);
    if (is_in_base && std::string_view(modules[id].type).find("Norm") != std::string_view::npos) tail.assign(1, id);
  }
  if (!is_tied) {
    group_of_[embeddings] = groups_.size();
    groups_.emplace_back().modules = {embeddings};
    groups_.back().reshards_after_forward = config_.reshard_after_forward;
  } else {
    tail.push_back(embeddings);
  }
  tail.push_back(head);
  // Of fsdp2_prepare_model's own names `param` is the last parameter, `input_weight` and `output_weight` are these two.
  ModuleId last = model_.root;
  for (const Parameter& parameter : model_.parameters)  // adapters' modules are in the layers
    if (!training_.has_adapters() || !parameter.tensor->leaf_requires_grad) last = std::max(last, parameter.module);
  held_ = {last, embeddings, head};
  for (const ModuleId module : tail) group_of_[module] = groups_.size();
  groups_.emplace_back().modules = tail;
  groups_.back().reshards_after_forward = false;
  for (ModuleId id = model_.root + 1; id < end; ++id) {
    if (id == embeddings || std::find(tail.begin(), tail.end(), id) != tail.end())
      wrapped[id] = id;
    else if (!group_of_.contains(id))
      wrapped[id] = wrapped[modules[id].parent];
  }
}

/// ModelParallelizer (NeMo Automodel 0.7, components/distributed/parallelizer.py): the last block stays gathered, and
/// embeddings and head that train and are not tied are units, of which the head stays gathered.
void FullyShard::make_automodels_groups(std::vector<ModuleId>& wrapped) {
  if (!groups_.empty()) groups_.back().reshards_after_forward = false;
  std::vector<ModuleId> units;
  const ModuleId end = context_.log.end_of(model_.root);
  for (const char* const name : {"embed_tokens", "lm_head"}) {
    bool is_there = false;
    for (ModuleId id = model_.root + 1; id < end && !is_there; ++id) {
      is_there = context_.log.modules[id].name == std::string_view(name);
      const auto trains = [&](const Parameter& p) { return p.module == id && p.tensor->leaf_requires_grad; };
      if (is_there && std::any_of(model_.parameters.begin(), model_.parameters.end(), trains)) units.push_back(id);
    }
    if (!is_there) {
      refusal_ = Error{"not-modelled", "/parallel/fsdp/preparer",
                       std::string("found a model without ") + name +
                           ", which is not supported yet; expected one that "
                           "has it"};
      return;
    }
  }
  if (units.size() != 2) return;
  for (const ModuleId id : units) {
    wrapped[id] = id;
    group_of_[id] = groups_.size();
    groups_.emplace_back().modules = {id};
    groups_.back().reshards_after_forward = config_.reshard_after_forward && id == units.front();
  }
}

/// _move_states_to_device: of what is on the host the group's parameters, then the buffers of the modules that are its
/// own.
void FullyShard::place(Group& group, const std::vector<ModuleId>& wrapped) {
  for (const Shard& shard : group.shards) {
    const ModuleScope scope(context_, shard.full.module);
    const Tensor& full = shard.full.tensor;
    if (has_memory(full) || config_.preparer == FsdpConfig::Preparer::automodel) continue;  // made on meta
    if (config_.is_prepared_by(FsdpConfig::Preparer::accelerate) && config_.param_dtype && full->leaf_requires_grad)
      full->dtype = DType::float32;
    replace_data(full, empty(context_, Op::parameter, full.sizes(), full.dtype(), Role::parameter));
  }
  for (const Buffer& buffer : model_.buffers) {
    if (has_memory(buffer.tensor) || &groups_[group_of_[wrapped[buffer.module]]] != &group) continue;
    const ModuleScope scope(context_, buffer.module);
    replace_data(buffer.tensor,
                 empty(context_, Op::buffer, buffer.tensor.sizes(), buffer.tensor.dtype(), Role::buffer));
  }
}

/// fsdp2_prepare_model gives fully_shard what it cannot shard, bitsandbytes' bytes, as ignored_params.
bool FullyShard::is_ignored(const Parameter& parameter) const {
  return config_.is_prepared_by(FsdpConfig::Preparer::accelerate) && !is_floating_point(parameter.tensor.dtype());
}

/// What accelerate holds of a model that is on the device until its groups are made: _prepare_fsdp2 an element in the
/// place of each parameter that the optimizer has, fsdp2_prepare_model the state_dict, in which a Linear4bit has a copy
/// of its nested_quant_map (QuantState.as_dict).
std::vector<Tensor> FullyShard::original_state() {
  std::vector<Tensor> held;
  if (!config_.by_accelerate) return held;
  for (const Parameter& parameter : model_.parameters) {
    const Tensor& tensor = parameter.tensor;
    if (has_memory(tensor) && tensor->leaf_requires_grad)
      held.push_back(empty(context_, Op::empty, {1}, tensor.dtype()));
  }
  std::vector<Parameter> parameters = model_.parameters;
  sort_by_module(parameters);
  for (const Parameter& parameter : parameters) {
    const Tensor& tensor = parameter.tensor;
    if (!has_memory(tensor)) continue;
    held.push_back(alias(tensor, tensor.sizes(), contiguous_strides(tensor.sizes())));
    const bool is_quantized = parameter.name == std::string_view("weight") &&
                              context_.log.modules[parameter.module].type == std::string_view("Linear4bit");
    if (is_quantized && training_.quantization->double_quant)
      held.push_back(empty(context_, Op::clone, {256}, DType::float32));
  }
  return held;
}

void FullyShard::initialize() {
  const NoGrad no_grad(context_);
  std::vector<Tensor> original = original_state();
  const std::vector<ModuleRecord>& modules = context_.log.modules;
  // In post-order a module comes after its children.
  std::vector<ModuleId> last(modules.size());  // of the subtree
  for (ModuleId id = static_cast<ModuleId>(modules.size()); id-- > 0;) {
    last[id] = std::max(last[id], id);
    if (id > 0) last[modules[id].parent] = std::max(last[modules[id].parent], last[id]);
  }
  // fully_shard on each module of a named class, in named_modules' order, then on the model with what is left.
  const bool by_accelerate = config_.is_prepared_by(FsdpConfig::Preparer::accelerate),
             by_axolotl = config_.is_prepared_by(FsdpConfig::Preparer::axolotl),
             by_automodel = config_.preparer == FsdpConfig::Preparer::automodel;
  const ModuleId end = context_.log.end_of(model_.root);
  std::vector<ModuleId> wrapped(modules.size(), model_.root), units;
  for (ModuleId id = model_.root + 1; id < end; ++id) {
    const auto is_type = [&](const std::string& name) { return name == modules[id].type; };
    const bool wraps =
        std::any_of(config_.wrap.begin(), config_.wrap.end(), is_type) || (by_axolotl && is_adapter(modules[id]));
    wrapped[id] = wraps ? id : wrapped[modules[id].parent];
    if (wraps) units.push_back(id);
  }
  if (by_axolotl) {  // get_module_children_bottom_up: what is in a block before the block
    std::reverse(units.begin(), units.end());
    sort_by(units, [&](ModuleId id) { return last[id]; });
  }
  for (const ModuleId id : units) {
    group_of_[id] = groups_.size();
    groups_.emplace_back().modules = {id};
    groups_.back().reshards_after_forward = config_.reshard_after_forward;
    groups_.back().is_adapter = is_adapter(modules[id]);
  }
  if (by_accelerate) make_accelerates_groups(wrapped);
  if (by_automodel) make_automodels_groups(wrapped);
  if (refusal_) return;
  groups_.emplace_back().modules = {model_.root};
  groups_.back().reshards_after_forward = config_.reshard_after_forward && !by_accelerate && !by_automodel;
  group_of_[model_.root] = groups_.size() - 1;
  refusal_ = check_shared(context_.log, model_, [&](ModuleId id) { return group_of_[wrapped[id]]; });
  if (refusal_) return;
  for (const Parameter& parameter : model_.parameters)
    if (!is_ignored(parameter)) groups_[group_of_[wrapped[parameter.module]]].shards.push_back({parameter, {}, 0});
  std::vector<Tensor> held(held_.size());  // whole, until all groups are made
  for (Group& group : groups_) {
    sort_by(group.shards, [](const Shard& shard) { return -std::int64_t{shard.full.module}; });
    const auto place_of = [&](const Shard& shard) {  // of its module among a group's own
      return std::find(group.modules.begin(), group.modules.end(), shard.full.module) - group.modules.begin();
    };
    sort_by(group.shards, [&](const Shard& shard) { return last[shard.full.module]; });  // _get_managed_modules
    if (group.modules.size() > 1) sort_by(group.shards, place_of);
    put_originals_first(group.shards, context_.log, training_,
                        [](const Shard& shard) -> const Parameter& { return shard.full; });
    place(group, wrapped);
    for (const Shard& shard : group.shards)
      for (std::size_t i = 0; i < held_.size(); ++i)
        if (const Tensor& full = shard.full.tensor; held_[i] == shard.full.module)
          held[i] = alias(full, full.sizes(), contiguous_strides(full.sizes()));
    // FSDPParamGroup._init_mp_dtypes
    std::optional<DType> dtype;
    for (const Shard& shard : group.shards) {
      if (!shard.full.tensor->leaf_requires_grad) continue;
      if (dtype && *dtype != shard.full.tensor.dtype())
        refusal_ = Error{
            "inconsistent", adapter_type_pointer(training_),
            "found an FSDP group whose trained parameters have two dtypes, which FSDP refuses; expected one dtype "
            "(autocast_adapter_dtype false, or training.precision fp32)"};
      dtype = shard.full.tensor.dtype();
    }
    shard(group);
  }
  // Not clear(): libraries differ in which element goes first.
  for (Tensor& whole : held) whole.reset();
  for (Tensor& state : original) state.reset();

  for (const Parameter& parameter : model_.parameters) {
    const Group& group = groups_[group_of_[wrapped[parameter.module]]];
    const auto same = [&](const Shard& shard) { return shard.full.tensor.get() == parameter.tensor.get(); };
    const auto found = std::find_if(group.shards.begin(), group.shards.end(), same);
    if (found == group.shards.end()) continue;  // ignored
    local_.push_back({found->local, parameter.module, parameter.name, parameter.decays});
  }
  optimizer_ = make_optimizer(context_, training_.optimizer);
  for (std::vector<Parameter>& group : parameter_groups(local_, training_.optimizer.param_groups))
    optimizer_->add_group(std::move(group));
  context_.listen(model_.root, static_cast<ModuleListener&>(*this));
  context_.listen(model_.root, static_cast<GradientListener&>(*this));
}

/// A trained parameter's rows are dealt out in equal parts until they end: on the last rank, if not before.
std::vector<std::int64_t> FullyShard::ranks_that_differ() const {
  if (world_ == 1) return {};
  for (const Group& group : groups_)
    for (const Shard& shard : group.shards) {
      const Tensor& full = shard.full.tensor;
      if (shard.local->leaf_requires_grad && (full.ndim() == 0 || full.size(0) % world_ != 0)) return {0, world_ - 1};
    }
  return {};
}

/// FSDPParam._init_sharded_param: the rank's rows of the first dimension, in as much memory as the first rank's take.
void FullyShard::shard(Group& group) {
  for (Shard& shard : group.shards) {
    const Tensor& full = shard.full.tensor;
    const ModuleScope scope(context_, shard.full.module);
    const std::int64_t rows = full.ndim() > 0 ? full.size(0) : 1;
    const std::int64_t most = divide_up(rows, world_);
    Shape sizes = full.ndim() > 0 ? full.sizes() : Shape{1};
    sizes[0] = most;
    Tensor padded = empty(context_, Op::zeros, sizes, full.dtype(), Role::parameter);
    shard.padded = padded.numel();
    if (config_.cpu_offload) {
      host_.keep(HostPart::parameters, padded.nbytes(), true);  // CPUOffloadPolicy(pin_memory=True)
      set_data(padded, context_.allocate(Op::none, 0, full.dtype(), {}, Role::parameter));
    }
    sizes[0] = std::clamp<std::int64_t>(rows - most * rank_, 0, most);
    shard.local = alias(padded, sizes, contiguous_strides(sizes));
    shard.local->leaf_requires_grad = full->leaf_requires_grad;
    // Its gradient, which foreach_reduce copies without waiting, and what the optimizer keeps of it.
    if (config_.cpu_offload && full->leaf_requires_grad) {
      host_.keep(HostPart::gradients, shard.local.nbytes(), true);
      host_.keep(HostPart::optimizer_states,
                 checked_product(shard.local.nbytes(), states_per_parameter(training_.optimizer)));
    }
  }
  for (Shard& shard : group.shards) {
    // From here on the model's own parameter has memory only while it is gathered.
    const Tensor& full = shard.full.tensor;
    full->dtype = group.is_adapter ? shard.local.dtype() : gathered_dtype(shard);
    set_data(full, context_.allocate(Op::none, 0, full.dtype(), {}, Role::parameter));
  }
}

// --- gathering -------------------------------------------------------------------------------------------------------

/// foreach_all_gather: shards are copied, cast where the precision is mixed, into a part of the buffer for all ranks'.
void FullyShard::unshard(Group& group) {
  if (group.is_unsharded || group.gathered || group.shards.empty()) return;
  if (world_ == 1) {  // waited for, although it is nothing
    group.gathered = empty(context_, Op::empty, {0}, DType::uint8);
    return;
  }
  const Scoped<std::uint8_t> stream(context_.stream, own_stream(kCopyInStream));
  const ModuleScope scope(context_, group.modules.front());
  std::int64_t numel = 0, cast = 0, bytes = 0;
  const DType dtype = gathered_dtype(group.shards.front());
  bool is_uniform = true;
  for (const Shard& shard : group.shards) {
    numel += shard.padded;
    if (gathered_dtype(shard) != shard.local.dtype()) cast += shard.padded;
    bytes += checked_product(shard.padded, element_size(gathered_dtype(shard)));
    is_uniform = is_uniform && gathered_dtype(shard) == dtype;
  }
  TensorList copies;
  if (config_.cpu_offload) {
    for (const Shard& shard : group.shards) {
      const Tensor copy = empty(context_, Op::to_copy, {shard.padded}, shard.local.dtype(), Role::parameter);
      copies.push_back(to(copy, gathered_dtype(shard)));
    }
  } else if (cast > 0) {
    copies.push_back(empty(context_, Op::to_copy, {cast}, dtype, Role::parameter));
  }
  // Parameters of several dtypes are gathered as bytes.
  group.gathered = empty(context_, Op::empty, {checked_product(is_uniform ? numel : bytes, world_)},
                         is_uniform ? dtype : DType::uint8, Role::parameter);
  writes(context_, Op::copy, bytes, dtype);
  collective(context_, Op::all_gather, checked_product(bytes, world_), dtype, world_);
  for (const Shard& shard : group.shards)
    context_.share(group.gathered, shard.full.module, checked_product(shard.padded, world_));
}

/// foreach_all_gather_copy_out: each parameter gets memory of its own.
void FullyShard::wait_for_unshard(Group& group) {
  if (!group.gathered) return;
  const bool forward = group.state == State::forward;
  if (forward) all_gather_state_.reset();  // the one before it has been copied out
  if (world_ == 1) {
    copy_shards(group);
    group.is_unsharded = true;
    group.gathered.reset();
    return;
  }
  std::vector<std::int64_t> chunks;
  for (const Shard& shard : group.shards) {
    const DType dtype = gathered_dtype(shard);
    const ModuleScope scope(context_, shard.full.module);
    shard.full.tensor->dtype = dtype;
    const std::int64_t numel = checked_product(shard.padded, world_);
    const std::int64_t bytes = checked_product(numel, element_size(dtype));
    context_.allocate_storage(*shard.full.tensor->storage, Op::empty, bytes, dtype, {numel}, Role::parameter);
    writes(context_, Op::copy, bytes, dtype);
    chunks.push_back(checked_product(shard.padded, element_size(dtype)));
  }
  {
    const ModuleScope scope(context_, group.modules.front());
    const Workspace packed(context_, Op::split, 8 * split_metadata(context_.device, chunks, world_));
  }
  group.is_unsharded = true;
  if (forward)
    all_gather_state_ = std::move(group.gathered);
  else
    group.gathered.reset();
}

/// wait_for_unshard on one GPU: each shard, cast where the precision is mixed, is copied into its parameter.
void FullyShard::copy_shards(Group& group) {
  Tensor all_gather_input;  // one parameter's, until the next one's is there
  for (const Shard& shard : group.shards) {
    const DType dtype = gathered_dtype(shard);
    const ModuleScope scope(context_, shard.full.module);
    Tensor input = shard.local;
    if (config_.cpu_offload) input = empty(context_, Op::to_copy, {shard.padded}, shard.local.dtype(), Role::parameter);
    all_gather_input = to(input, dtype);
    input.reset();
    const std::int64_t bytes = checked_product(shard.padded, element_size(dtype));
    context_.allocate_storage(*shard.full.tensor->storage, Op::empty, bytes, dtype, {shard.padded}, Role::parameter);
    writes(context_, Op::copy, bytes, dtype);
  }
}

void FullyShard::reshard(Group& group) {
  if (!group.is_unsharded) return;
  for (const Shard& shard : group.shards) {
    context_.free_storage(*shard.full.tensor->storage);
    if (group.is_adapter) shard.full.tensor->dtype = shard.local.dtype();
  }
  group.is_unsharded = false;
}

/// Of a head that is a group by itself and is not called: TRL gathers it as its optimizer has it (_to_replicate_tensor,
/// torch/distributed/tensor/placement_types.py), and its gradient is this rank's rows of the whole one, which no other
/// rank adds to (_replicate_to_shard).
Tensor FullyShard::full_tensor(const Tensor& parameter) {
  for (const Group& group : groups_)
    for (const Shard& shard : group.shards) {
      const Tensor& full = shard.full.tensor;
      if (full.get() != parameter.get()) continue;
      if (group.is_unsharded || context_.stopped) return parameter;
      if (config_.cpu_offload) {
        refusal_ =
            Error{"not-modelled", "/parallel/strategy",
                  "found a head that is an FSDP group by itself, and is on the host, where TRL then computes the "
                  "loss, which is not supported yet; expected fsdp1, ddp or deepspeed"};
        return parameter;
      }
      Record record(Op::all_gather,
                    [](Backward& b) { b.give(0, empty(b.context, Op::clone, b.input_sizes(0), b.grad().dtype())); },
                    {&shard.local});
      const NoGrad no_grad(context_);
      const ModuleScope scope(context_, shard.full.module);
      Tensor part;  // _maybe_pad_tensor
      if (shard.local.numel() < shard.padded)
        part = empty(context_, Op::constant_pad_nd, {shard.padded}, shard.local.dtype());
      const Tensor whole =
          empty(context_, Op::empty, {checked_product(shard.padded, world_)}, shard.local.dtype(), Role::parameter);
      collective(context_, Op::all_gather, whole.nbytes(), whole.dtype(), world_);
      return record.output(alias(whole, full.sizes(), contiguous_strides(full.sizes())));
    }
  return parameter;
}

// --- hooks -----------------------------------------------------------------------------------------------------------

/// FSDPState._pre_forward. In a recomputation, too: of what is wrapped within a checkpointed block.
void FullyShard::pre_forward(Group& group) {
  const NoGrad no_grad(context_);
  if (!context_.in_backward || group.state != State::pre_backward) {
    group.state = State::forward;
    if (!iter_forward_root_) iter_forward_root_ = &group;
  }
  unshard(group);
  wait_for_unshard(group);
}

/// _register_group_forward_hooks
void FullyShard::before_forward(ModuleId module) {
  Group& group = group_of(module);
  if (group.to_run.empty()) group.to_run = group.modules;
  if (group.state != State::forward && group.state != State::pre_backward) group.first = module;
  pre_forward(group);
}

void FullyShard::after_forward(ModuleId module) {
  Group& group = group_of(module);
  std::erase(group.to_run, module);
  if (!group.to_run.empty()) return;
  group.last = module;
  post_forward(group);
}

/// FSDPState._post_forward. What a recomputation gathers stays for the backward that asked for it; one that stops
/// within the module does not come here.
void FullyShard::post_forward(Group& group) {
  if (context_.stopped || (context_.in_backward && group.state == State::pre_backward)) return;
  if (!context_.in_backward) {
    if (group.reshards_after_forward) reshard(group);
    // _record_post_forward
    group.post_forward_indices.push_back(post_forward_order_.size());
    post_forward_order_.push_back(static_cast<std::size_t>(&group - groups_.data()));
  }
  group.state = State::idle;
  if (iter_forward_root_ != &group) return;
  all_gather_state_.reset();
  iter_forward_root_ = nullptr;
}

/// The group is gathered, and the one that ran before it in forward begins to be (_backward_prefetch).
void FullyShard::pre_backward(Group& group) {
  if (group.state == State::pre_backward) return;  // another output's gradient came first
  group.state = State::pre_backward;
  unshard(group);
  wait_for_unshard(group);
  // _set_unsharded_grad_dtypes: to a wider type only what others are to be added to is cast when it comes, and all else
  // stays as autograd has it; to any other type every gradient.
  for (const Shard& shard : group.shards) {
    const Tensor& full = shard.full.tensor;
    const bool is_wider = element_size(accumulated_dtype(shard)) > element_size(full.dtype());
    full->takes_any_grad = is_wider && (syncs_ || full->grad);
    full->grad_dtype.reset();
    if (!full->takes_any_grad) full->grad_dtype = accumulated_dtype(shard);
  }
  if (group.post_forward_indices.empty()) return;
  const std::size_t index = group.post_forward_indices.back();
  group.post_forward_indices.pop_back();
  if (index > 0) unshard(groups_[post_forward_order_[index - 1]]);
}

/// FSDPParamGroup.post_backward, foreach_reduce.
void FullyShard::post_backward(Group& group) {
  group.state = State::post_backward;
  if (!syncs_) return reshard(group);
  TensorList gradients;
  std::vector<Shard*> reduced;
  for (Shard& shard : group.shards) {
    Tensor& gradient = shard.full.tensor->grad;
    if (!gradient) continue;
    gradients.push_back(std::move(gradient));
    reduced.push_back(&shard);
  }
  reshard(group);
  reduce_scatter_input_.reset();  // the group before it
  if (gradients.empty()) return;
  const ModuleScope scope(context_, group.modules.front());
  DType dtype = accumulated_dtype(*reduced.front());
  for (const Shard* shard : reduced)
    if (element_size(accumulated_dtype(*shard)) > element_size(dtype)) dtype = accumulated_dtype(*shard);
  std::int64_t numel = 0;
  std::vector<std::int64_t> chunks;
  for (const Shard* shard : reduced) {
    numel += shard->padded;
    chunks.push_back(checked_product(shard->padded, element_size(dtype)));
  }
  const auto share = [&](const Tensor& buffer, std::int64_t parts) {
    context_.set_role(buffer, Role::gradient, group.modules.front());
    for (const Shard* shard : reduced)
      context_.share(buffer, shard->full.module, checked_product(shard->padded, parts));
  };
  reduce_scatter_input_ = empty(context_, Op::empty, {checked_product(numel, world_)}, dtype);
  share(reduce_scatter_input_, world_);
  writes(context_, Op::cat, reduce_scatter_input_.nbytes(), dtype);
  const DType first = gradients[0].dtype();
  const bool is_mixed =
      std::any_of(gradients.begin(), gradients.end(), [&](const Tensor& g) { return g.dtype() != first; });
  { const Workspace packed(context_, Op::cat, 8 * chunk_cat_metadata(chunks, is_mixed)); }
  gradients.clear();
  const Scoped<std::uint8_t> stream(context_.stream, own_stream(kReduceScatterStream));
  Tensor output = empty(context_, Op::empty, {numel}, dtype);
  share(output, 1);
  collective(context_, Op::reduce_scatter, reduce_scatter_input_.nbytes(), dtype, world_);
  if (const DType own = reduced.front()->local.dtype(); own != dtype) {
    output = to(output, own);
    share(output, 1);
  }
  if (config_.cpu_offload) return;  // copied to the host
  for (const Shard* shard : reduced) {
    const Tensor& local = shard->local;
    if (local->grad)
      kernel(Op::add, {&local->grad, &local->grad}, local->grad);
    else
      local->grad = alias(output, local.sizes(), local.strides());
  }
}

// --- the step --------------------------------------------------------------------------------------------------------

void FullyShard::before_forward(ModelInputs& inputs, bool last_micro_step) {
  if (refusal_) return;
  syncs_ = last_micro_step;
  if (const std::optional<DType> dtype = forward_inputs_dtype()) input_cast_.apply(inputs, *dtype);
  before_forward(model_.root);
}

void FullyShard::after_forward(ModelOutputs& outputs) {
  after_forward(model_.root);
  // _force_complete_incomplete_states: of a group whose head was not called.
  for (Group& group : groups_) {
    if (group.to_run.empty()) continue;
    group.to_run.clear();
    group.last = group.modules.back();
    post_forward(group);
    for (Tensor* output : outputs.all()) *output = hook_gradient(*output, group.last, true);
  }
  for (Tensor* output : outputs.all()) *output = hook_gradient(*output, model_.root, true);
  if (config_.output_dtype) {
    TensorList cast;  // all are there before the model's own go
    for (const Tensor* output : outputs.all())
      cast.push_back(is_floating_point(output->dtype()) ? to(*output, *config_.output_dtype) : *output);
    std::size_t i = 0;
    for (Tensor* output : outputs.all()) *output = cast[i++];
  }
  input_cast_.undo();
}

void FullyShard::backward(const Tensor& loss, bool) {
  // Tensor.backward holds it until the engine's final callbacks have run.
  const Tensor gradient = empty(context_, Op::ones_like, loss.sizes(), loss.dtype());
  autograd::backward(loss, gradient);
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  // _root_post_backward_final_callback: those whose inputs wanted no gradient, the model first.
  const auto finish = [&](Group& group) {
    if (group.state != State::post_backward) post_backward(group);
    group.state = State::idle;
  };
  std::vector<Group*> all_states;  // in named_modules' order
  for (Group& group : groups_) all_states.push_back(&group);
  sort_by(all_states,
          [](const Group* group) { return *std::min_element(group->modules.begin(), group->modules.end()); });
  for (Group* group : all_states) {
    finish(*group);
    group->to_run.clear();
  }
  for (Group& group : groups_) {
    group.gathered.reset();  // gathered for a backward that did not come
    group.post_forward_indices.clear();
  }
  reduce_scatter_input_.reset();
  post_forward_order_.clear();
}

/// get_model_state_dict with full_state_dict and cpu_offload (torch/distributed/checkpoint/state_dict.py): one
/// parameter after the other is gathered and copied to the host. So are then the optimizer's states of each, which are
/// as large.
void FullyShard::save() {
  const NoGrad no_grad(context_);
  for (const Group& group : groups_)
    for (const Shard& shard : group.shards) {
      const ModuleScope scope(context_, shard.full.module);
      const std::int64_t numel = checked_product(shard.padded, world_);
      Tensor part;  // _iterate_state_dict: value.to(pg_device)
      if (config_.cpu_offload)
        part = empty(context_, Op::to_copy, {shard.padded}, shard.local.dtype(), Role::parameter);
      const Tensor full = empty(context_, Op::empty, {numel}, shard.local.dtype(), Role::parameter);
      collective(context_, Op::all_gather, full.nbytes(), full.dtype(), world_);
    }
}

void FullyShard::step() {
  if (config_.cpu_offload) return;  // on the CPU
  Tensor recipes_norm;
  if (training_.max_grad_norm) {
    const bool is_recipes = training_.loop.project == LoopProject::automodel;
    Tensor norm = is_recipes ? clip_recipes_grad_norm(context_, local_) : clip_grad_norm(context_, local_, true);
    if (is_recipes) recipes_norm = norm;
    if (grad_norm.is_held) grad_norm.value = std::move(norm);
  }
  optimizer_->step();
  optimizer_->zero_grad();
}

}  // namespace oometer
