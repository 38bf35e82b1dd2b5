#include "distributed/zero_3.h"

#include <algorithm>
#include <string_view>

#include "distributed/saved_modules.h"
#include "ops/ops.h"
#include "sort_by.h"
#include "tensor/kernel.h"

namespace oometer {

namespace {

constexpr std::uint8_t kAllGatherStream = 1, kReduceAndPartitionStream = 2;

}  // namespace

DeepSpeedZeroOptimizerStage3::DeepSpeedZeroOptimizerStage3(Context& context, Model& model,
                                                           const TrainingConfig& training,
                                                           const ParallelConfig& parallel,
                                                           std::vector<ZeroParameter> parameters)
    : DeepSpeedTrainer(context, model, training, parallel),
      rank_(parallel.rank.value_or(0)),
      parameters_(std::move(parameters)) {}

DeepSpeedZeroOptimizerStage3::~DeepSpeedZeroOptimizerStage3() { context_.forget(*this); }

// --- initialisation --------------------------------------------------------------------------------------------------

void DeepSpeedZeroOptimizerStage3::initialize() {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  OptimizerConfig own = training_.optimizer;
  if (offloads_optimizer()) own = {};  // it has nothing on the device
  if (config_.splits_optimizer()) {    // backup_optimizer
    own.name = OptimizerName::adamw;
    own.implementation = OptimizerImplementation::foreach_;
  }
  optimizer_ = make_optimizer(context_, own);
  states_of_whole_ = states_of_basic_optimizer();
  // _convert_to_zero_parameters: adapters, which zero.Init has not seen.
  for (const Parameter& parameter : model_.parameters) {
    if (!context_.record(parameter.tensor)) continue;  // it has been cut
    if (context_.behaviours.deepspeed_halves_buffers) cast_parameter(parameter.tensor, dtype_);
    ZeroParameter& cut = parameters_.emplace_back(ZeroParameter{parameter.tensor, parameter.module, 0, 0, {}, {}, {}});
    partition_parameter(context_, cut, config_, world_);
  }
  coordinator_ = std::make_unique<ParameterCoordinator>(context_, model_.root, config_, world_,
                                                        config_.overlap_comm ? kAllGatherStream : context_.stream,
                                                        std::move(parameters_));
  for (const Parameter& parameter : model_.tied) coordinator_->add_use(parameter.module, parameter.tensor);
  find_modules_to_save();
  coordinator_->mark_persistent(model_.parameters);
  refuse_what_deepspeed_refuses();
  if (!offloads_optimizer()) inf_or_nan_tracker_ = empty(context_, Op::zeros, {1}, DType::boolean);
  if (config_.splits_optimizer()) {
    const Tensor random = empty(context_, Op::empty, {1}, DType::float32);
    backup_parameter_ = to(random, dtype_);
  }
  make_groups();
  defragment();
  make_masters();
  if (!offloads_optimizer()) {
    // initialize_optimizer_states: the gradients are parts of a buffer that is let go again.
    std::int64_t largest = 0;
    for (const Group& group : groups_) largest = std::max(largest, group.numel);
    const Tensor buffer = empty(context_, Op::zeros, {largest}, DType::float32, Role::gradient);
    if (has_states_at_once())
      for (const Group& group : groups_) optimizer_->add_group({{group.master, model_.root}});
    else if (context_.behaviours.zero_optimizer_states_at_init)
      for (std::size_t i = 0; i < groups_.size(); ++i) {
        groups_[i].master->grad = alias(buffer, {groups_[i].numel}, {1});
        optimizer_->step_group(i);
      }
    optimizer_->zero_grad();
  }
  for (std::size_t i = 0; i < groups_on_device(); ++i) {  // initialize_optimizer_states: they stay
    groups_[i].master->grad = empty(context_, Op::to_copy, {groups_[i].numel}, DType::float32);
    share(groups_[i].master->grad, groups_[i], Role::gradient);
  }
  if (config_.contiguous_gradients)
    bucket_ = empty(context_, Op::bucket, {config_.reduce_bucket_size}, dtype_, Role::gradient);
  std::int64_t total = 0;
  for (const Group& group : groups_) total += group.numel;
  if (offloads_optimizer()) {
    keep_on_host();
  } else {
    gradients_ = empty(context_, Op::zeros, {total}, dtype_, Role::gradient);
    for (const Group& group : groups_) share(gradients_, group, Role::gradient);
  }
  // create_reduce_and_remove_grad_hooks: each is gathered for as long as it takes to find its AccumulateGrad.
  for (const Group& group : groups_)
    for (const Index index : group.parameters) {
      coordinator_->gather_now({&index, 1});
      coordinator_->release(index);
    }
  for (const Group& group : groups_)
    for (const Index index : group.parameters)
      if (const ModuleId leaf = coordinator_->leaf_of(index); leaf != kNever) of_leaves_[leaf].push_back(index);
  if (!of_leaves_.empty()) coordinator_->leaf_is_through = [this](ModuleId leaf) { reduce_leaf(leaf); };
  context_.listen(model_.root, *this);
}

std::size_t DeepSpeedZeroOptimizerStage3::groups_on_device() const {
  if (!config_.splits_optimizer()) return 0;
  return static_cast<std::size_t>((1 - config_.offload_ratio) * static_cast<double>(groups_.size()));
}

/// grad_partitions_flat_buffer; of each group that is there the masters, their gradients and what the optimizer keeps
/// of them.
void DeepSpeedZeroOptimizerStage3::keep_on_host() {
  const bool pinned = config_.pins_optimizer;
  std::int64_t total = 0, offloaded = 0, largest = 0;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const std::int64_t numel = groups_[i].numel;
    total += numel;
    const bool leaves = i < groups_on_device();  // it is made on the host, too
    if (!leaves || pinned) host_.keep(HostPart::gradients, checked_product(numel, 4), pinned);
    if (leaves && pinned) host_.release_pinned(HostPart::gradients, checked_product(numel, 4));
    if (leaves) continue;
    offloaded += numel;
    largest = std::max(largest, numel);
  }
  host_.keep(HostPart::gradients, checked_product(total, element_size(dtype_)), pinned);
  host_.keep(HostPart::master_weights, checked_product(offloaded, 4));
  // On their way to weights on the device they are cast on the host, a group at a time (Copy.cu, 2.15: copy_impl).
  if (config_.offload_param == OffloadDevice::none)
    host_.keep(HostPart::weight_copies, checked_product(largest, element_size(dtype_)));
  host_.keep(HostPart::optimizer_states, checked_product(offloaded, 4 * states_per_parameter(training_.optimizer)));
}

/// The last ranks' parts can be padding alone. It has no norm and no copy where the optimizer is in host memory, and is
/// made where gradients are all-reduced; else all ranks do the same.
std::vector<std::int64_t> DeepSpeedZeroOptimizerStage3::ranks_that_differ() const {
  if (!offloads_optimizer() && config_.reduce_scatter) return {};
  for (const Group& group : groups_)
    for (const Index index : group.parameters) {
      const ZeroParameter& parameter = coordinator_->parameters()[index];
      if (parameter.partition_numel * world_ != parameter.numel) return {0, world_ - 1};
    }
  return {};
}

/// ModulesToSaveWrapper (peft/utils/other.py): it is called and calls the copy, never the original.
void DeepSpeedZeroOptimizerStage3::find_modules_to_save() {
  const std::vector<ModuleId> saved = saved_modules(context_.log, training_);
  if (saved.empty()) return;
  for (const ModuleId module : saved) coordinator_->add_wrapper(module);
  for (const Parameter& copy : model_.parameters)
    for (const Parameter& original : model_.parameters)
      if (copy.tensor->leaf_requires_grad && !original.tensor->leaf_requires_grad && copy.module == original.module &&
          copy.name == std::string_view(original.name))
        coordinator_->remove_use(original.module, original.tensor);
}

void DeepSpeedZeroOptimizerStage3::share(const Tensor& buffer, const Group& group, Role role) {
  context_.set_role(buffer, role, model_.root);
  for (const Index index : group.parameters)
    context_.share(buffer, coordinator_->parameters()[index].module, partition_numel(index));
}

void DeepSpeedZeroOptimizerStage3::refuse_what_deepspeed_refuses() {
  bool first = true;
  for (const Parameter& parameter : model_.parameters) {
    const Tensor& tensor = parameter.tensor;
    if (tensor.ndim() == 0 && context_.behaviours.zero_3_gathers_in_place)
      refusal_ = Error{"refused", "/parallel/zero_stage",
                       "DeepSpeed's zero.Init cannot partition a parameter without dimensions (" +
                           std::string(parameter.name) +
                           "): it fails with \"self.dim() cannot be 0 to view BFloat16 as Byte\"; expected stage 2"};
    if (!tensor->leaf_requires_grad) continue;
    if (!first && tensor.dtype() != trained_dtype_)
      refusal_ = Error{
          "refused", adapter_type_pointer(training_),
          "found trained parameters of two dtypes (adapters in float32, weights in half precision), at which ZeRO-3 "
          "fails (defragment, an AssertionError); expected autocast_adapter_dtype false, or stage 2"};
    trained_dtype_ = tensor.dtype();
    first = false;
  }
}

/// _create_fp16_sub_groups
void DeepSpeedZeroOptimizerStage3::make_groups() {
  for (const std::vector<Parameter>& parameters :
       parameter_groups(model_.parameters, training_.optimizer.param_groups)) {
    groups_.emplace_back();
    for (const Parameter& parameter : parameters) {
      const Index index = coordinator_->index_of(parameter.tensor);
      if (groups_.back().numel >= config_.sub_group_size) groups_.emplace_back();
      groups_.back().parameters.push_back(index);
      groups_.back().numel += partition_numel(index);
    }
  }
}

/// defragment (runtime/zero/utils.py): the trained partitions go through host memory into one buffer.
void DeepSpeedZeroOptimizerStage3::defragment() {
  std::int64_t total = 0;
  for (const Group& group : groups_) {
    total += group.numel;
    for (const Index index : group.parameters) coordinator_->parameters()[index].partition.reset();
  }
  if (config_.offload_param != OffloadDevice::none) {
    // zero.Init has put them there one by one; _create_param_groups_fp16_flat_cpu_memory takes those that train into
    // pinned buffers, one of each group of the optimizer's.
    const bool pinned = config_.pins_param;
    constexpr std::int64_t kMmapThreshold = std::int64_t{32} << 20;  // glibc's heap keeps smaller blocks: malloc.c
    const auto bytes_of = [](const ZeroParameter& parameter) {
      return checked_product(parameter.partition_numel, element_size(parameter.tensor.dtype()));
    };
    for (const ZeroParameter& parameter : coordinator_->parameters())
      if (!parameter.partition && (pinned || !parameter.tensor->leaf_requires_grad))
        host_.keep(HostPart::parameters, bytes_of(parameter), pinned);
    for (const std::vector<Parameter>& parameters :
         parameter_groups(model_.parameters, training_.optimizer.param_groups)) {
      std::int64_t numel = 0;
      for (const Parameter& parameter : parameters) numel += partition_numel(coordinator_->index_of(parameter.tensor));
      host_.keep(HostPart::parameters, checked_product(numel, element_size(trained_dtype_)), true);
    }
    for (const ZeroParameter& parameter : coordinator_->parameters())
      if (!parameter.partition && parameter.tensor->leaf_requires_grad) {
        if (pinned)
          host_.release_pinned(HostPart::parameters, bytes_of(parameter));
        else if (bytes_of(parameter) < kMmapThreshold)
          host_.keep(HostPart::pinned_cache, bytes_of(parameter));
      }
    return;
  }
  context_.empty_cache();
  flat_ = empty(context_, Op::to_copy, {total}, trained_dtype_, Role::parameter);
  for (const Group& group : groups_) {
    share(flat_, group, Role::parameter);
    for (const Index index : group.parameters)
      coordinator_->parameters()[index].partition = alias(flat_, {partition_numel(index)}, {1});
  }
}

/// _create_fp32_partitions
void DeepSpeedZeroOptimizerStage3::make_masters() {
  Tensor converted;  // bound until the next one's is there; float32 adapters' flat itself
  const std::size_t count = offloads_optimizer() ? groups_on_device() : groups_.size();
  for (std::size_t i = 0; i < count; ++i) {
    Group& group = groups_[i];
    if (!flat_) {  // from host memory
      converted = empty(context_, Op::to_copy, {group.numel}, DType::float32);
      group.master = clone(converted);
      share(group.master, group, Role::optimizer_state);
      optimizer_->add_group({{group.master, model_.root}});
      continue;
    }
    const Tensor flat = alias(flat_, {group.numel}, {1});
    if (context_.behaviours.zero_3_converts_first) {
      converted = to(flat, DType::float32);
      group.master = clone(converted);
    } else {
      const Tensor copy = clone(flat);
      group.master = to(copy, DType::float32);
    }
    share(group.master, group, Role::optimizer_state);
    if (!has_states_at_once()) optimizer_->add_group({{group.master, model_.root}});
  }
}

// --- forward ---------------------------------------------------------------------------------------------------------

/// What is called around the model (peft 0.21.2, peft_model.py): PeftModel calls the model itself; one of a task, as a
/// trainer's script asks for, calls its LoraModel (or IA3Model), and that the model.
std::vector<ModuleId> DeepSpeedZeroOptimizerStage3::roots() const {
  if (!training_.lora && !training_.ia3) return {model_.root};
  if (training_.loop.is_trainer()) return {kNever, kNever, model_.root};
  return {kNever, model_.root};
}

void DeepSpeedZeroOptimizerStage3::before_forward(ModelInputs&, bool) {
  const ModuleScope scope(context_, model_.root);
  coordinator_->reset_step();
  for (const ModuleId root : roots()) coordinator_->before_forward(root);
}

void DeepSpeedZeroOptimizerStage3::after_forward(ModelOutputs& outputs) {
  const ModuleScope scope(context_, model_.root);
  const std::vector<ModuleId> called = roots();
  for (auto root = called.rbegin(); root != called.rend(); ++root) {
    coordinator_->after_forward(*root);
    for (Tensor* output : outputs.all()) *output = hook_gradient(*output, *root, true);
  }
}

// --- backward --------------------------------------------------------------------------------------------------------

/// create_reduce_and_remove_grad_hooks: gradients of a leaf wait until the whole leaf's backward is through
/// (register_full_backward_hook).
void DeepSpeedZeroOptimizerStage3::gradient_ready(const Tensor& tensor) {
  if (!coordinator_->holds(tensor)) return;
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  const Index index = coordinator_->index_of(tensor);
  context_.set_role(tensor->grad, Role::gradient, coordinator_->parameters()[index].module);
  if (coordinator_->leaf_of(index) == kNever)
    put_in_bucket(index);
  else
    ++held_back_;
}

/// reduce_leaf_module_grads
void DeepSpeedZeroOptimizerStage3::reduce_leaf(ModuleId leaf) {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  for (const Index index : of_leaves_[leaf]) {
    if (!coordinator_->parameters()[index].tensor->grad) continue;
    put_in_bucket(index);
    --held_back_;
  }
}

/// reduce_independent_p_g_buckets_and_remove_grads
void DeepSpeedZeroOptimizerStage3::put_in_bucket(Index index) {
  const Tensor& tensor = coordinator_->parameters()[index].tensor;
  const std::int64_t numel = tensor.numel();
  if (bucket_elements_ + numel > config_.reduce_bucket_size && bucket_elements_ > 0) reduce_bucket();
  if (config_.contiguous_gradients && bucket_elements_ + numel <= config_.reduce_bucket_size) {
    set_data(tensor->grad, bucket_);
    tensor->grad->dtype = dtype_;
  }
  bucket_elements_ += numel;
  in_bucket_.push_back(index);
}

/// __reduce_and_partition_ipg_grads
void DeepSpeedZeroOptimizerStage3::reduce_bucket() {
  if (in_bucket_.empty()) return;
  const Scoped<std::uint8_t> stream(context_.stream,
                                    config_.overlap_comm ? kReduceAndPartitionStream : context_.stream);
  const auto gradient_buffer = [&](Op op, std::int64_t numel) {
    return empty(context_, op, {numel}, dtype_, Role::gradient);
  };
  TensorList padding, halves;
  Tensor flat;
  if (!config_.reduce_scatter && config_.contiguous_gradients && bucket_elements_ <= config_.reduce_bucket_size) {
    // __avg_scatter_contiguous_grads: all-reduced in place, then scaled into a copy.
    if (world_ != 1) flat = gradient_buffer(Op::mul, bucket_elements_);
    collective(context_, Op::all_reduce, checked_product(bucket_elements_, element_size(dtype_)), dtype_, world_);
    for (const Index index : in_bucket_) {
      const ZeroParameter& parameter = coordinator_->parameters()[index];
      if (parameter.numel < parameter.partition_numel * (rank_ + 1))
        padding.push_back(gradient_buffer(Op::zeros, parameter.partition_numel));
    }
  } else {
    // reduce_scatter_coalesced: all ranks' parts in turn, each padded, but for a single gradient that needs none.
    sort_by(in_bucket_, [](Index index) { return index; });
    const ZeroParameter& first = coordinator_->parameters()[in_bucket_.front()];
    // Gradients of float32 adapters that did not fit the bucket travel in the engine's type.
    for (const Index index : in_bucket_) {
      const Tensor& gradient = coordinator_->parameters()[index].tensor->grad;
      if (gradient.dtype() != dtype_) halves.push_back(gradient_buffer(Op::to_copy, gradient.numel()));
    }
    if (in_bucket_.size() == 1 && first.numel % world_ == 0) {
      flat = detach(first.tensor->grad);
    } else {
      std::int64_t total = 0;
      for (const Index index : in_bucket_) total += partition_numel(index);
      for (std::int64_t rank = 0; rank < world_; ++rank)
        for (const Index index : in_bucket_) {
          const ZeroParameter& parameter = coordinator_->parameters()[index];
          const std::int64_t missing =
              std::min(parameter.partition_numel * (rank + 1) - parameter.numel, parameter.partition_numel);
          if (missing > 0) padding.push_back(gradient_buffer(Op::empty, missing));
        }
      flat = gradient_buffer(Op::cat, checked_product(total, world_));
    }
    halves.clear();
    padding.clear();
    collective(context_, Op::reduce_scatter, flat.nbytes(), dtype_, world_);
  }
  // partition_grads: into grad_partitions_flat_buffer, or added to what is there.
  for (const Index index : in_bucket_) {
    if (offloads_optimizer()) offload_gradient(index);
    coordinator_->parameters()[index].tensor->grad.reset();
  }
  in_bucket_.clear();
  bucket_elements_ = 0;
}

/// partition_grads with an optimizer in host memory: the partition comes back for its norm, and as floats.
void DeepSpeedZeroOptimizerStage3::offload_gradient(Index index) {
  const std::int64_t numel = partition_numel(index);
  const ZeroParameter& parameter = coordinator_->parameters()[index];
  if (parameter.partition_numel * rank_ >= parameter.numel) return;  // nothing but padding
  const Tensor on_device = empty(context_, Op::to_copy, {numel}, dtype_, Role::gradient);
  if (!last_micro_step_) return;
  // _constant_buffered_norm2
  constexpr std::int64_t kBuffer = 250'000'000;
  Tensor norm;
  for (std::int64_t begin = 0; begin < numel; begin += kBuffer) {
    const Tensor part = alias(on_device, {std::min(kBuffer, numel - begin)}, {1});
    Tensor as_double = to(part, DType::float64);
    Tensor of_part = reduce(Op::linalg_vector_norm, as_double, {0}, false, DType::float64);
    as_double.reset();
    Tensor square = scalar(context_, Op::pow, DType::float64);
    of_part.reset();
    if (!norm) norm = std::move(square);
  }
  offloaded_norms_.push_back(scalar(context_, Op::pow, DType::float64));
  norm.reset();
  const Tensor as_float = to(on_device, DType::float32);
}

void DeepSpeedZeroOptimizerStage3::backward_epilogue(bool) {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  const bool trace_ends = context_.behaviours.zero_3_trace_ends_in_backward;
  if (trace_ends) coordinator_->reset_step();
  reduce_bucket();  // independent_gradient_partition_epilogue
  if (!trace_ends) coordinator_->release_leftovers();
  refusal_ = coordinator_->refusal();
  if (held_back_ > 0)
    refusal_ = Error{"not-modelled", "/parallel/zero_stage",
                     "DeepSpeed reduces the gradients of a block of experts before they are there, where its input "
                     "wants none; expected training.stage \"full\""};
}

// --- saving ----------------------------------------------------------------------------------------------------------

/// Accelerator.get_state_dict: _zero3_consolidated_16bit_state_dict (runtime/engine.py) gathers one module's parameters
/// after the other's, from which they are copied to the host. Then save_checkpoint copies the rank's parts.
void DeepSpeedZeroOptimizerStage3::save() {
  const NoGrad no_grad(context_);
  if (config_.gather_16bit_weights_on_model_save) {
    coordinator_->release_all();  // checkpoint_event_prologue
    coordinator_->gather_by_module();
    coordinator_->gather_persistent();  // checkpoint_event_epilogue
  }
  coordinator_->release_all();
  coordinator_->gather_persistent();
}

// --- step ------------------------------------------------------------------------------------------------------------

/// has_overflow
void DeepSpeedZeroOptimizerStage3::check_overflow() {
  const Scoped<std::uint8_t> stream(context_.stream,
                                    config_.overlap_comm ? kReduceAndPartitionStream : context_.stream);
  {
    const Tensor infinite = is_infinite(gradients_);
    const Tensor any = scalar(context_, Op::all, DType::boolean);
  }
  {
    const Tensor nan = empty_like(Op::ne, gradients_, DType::boolean);
    const Tensor any = scalar(context_, Op::all, DType::boolean);
  }
  Tensor copy = empty_like(Op::clone, inf_or_nan_tracker_);
  const Tensor as_byte = empty(context_, Op::to_copy, {1}, DType::uint8);
}

/// get_grad_norm_direct
Tensor DeepSpeedZeroOptimizerStage3::group_norm(const Group& group) {
  TensorList norms;
  const std::vector<int> dims{0};
  for (const Index index : group.parameters) {
    const Tensor as_double = empty(context_, Op::to_copy, {partition_numel(index)}, DType::float64);
    norms.push_back(reduce(Op::linalg_vector_norm, as_double, dims, false, DType::float64));
  }
  Tensor stacked = empty(context_, Op::stack, {static_cast<std::int64_t>(norms.size())}, DType::float64);
  Tensor squared = empty_like(Op::pow, stacked);
  stacked.reset();
  const Tensor sum = reduce(Op::sum, squared, dims, false, DType::float64);
  squared.reset();
  if (context_.behaviours.zero_norm_on_host) return {};
  const Tensor total = scalar(context_, Op::pow, DType::float64);
  const Tensor infinite = is_infinite(total);
  const Tensor nan = scalar(context_, Op::ne, DType::boolean);
  const Tensor invalid = scalar(context_, Op::add, DType::boolean);
  const Tensor error = scalar(context_, Op::to_copy, DType::float32);
  if (context_.behaviours.zero_checks_overflow_always) {
    const Tensor as_double = to(error, DType::float64);
    return scalar(context_, Op::where, DType::float64);
  }
  const Tensor masked = scalar(context_, Op::mul, DType::float32);
  Tensor valid = scalar(context_, Op::logical_not, DType::boolean);
  const Tensor kept = scalar(context_, Op::mul, DType::float64);
  valid.reset();
  return scalar(context_, Op::add, DType::float64);
}

/// complete_grad_norm_calculation_for_cpu_offload: the result is a number on the host.
void DeepSpeedZeroOptimizerStage3::offloaded_group_norm(const Group& group) {
  Tensor total;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    const Tensor square = scalar(context_, Op::pow, DType::float64);
    if (!total) total = scalar(context_, Op::add, DType::float64);
  }
  const Tensor all = empty(context_, Op::to_copy, {1}, DType::float32);
  const Tensor norm = scalar(context_, Op::pow, DType::float32);
  total.reset();
  const Tensor infinite = is_infinite(norm);
  const Tensor nan = scalar(context_, Op::ne, DType::boolean);
  const Tensor invalid = scalar(context_, Op::add, DType::boolean);
  const Tensor error = scalar(context_, Op::to_copy, DType::float32);
}

void DeepSpeedZeroOptimizerStage3::step_group(std::size_t index, const Tensor& norm) {
  Group& group = groups_[index];
  {
    // _prepare_fp32_grad_for_sub_group; flatten of one tensor is a mere view.
    Tensor flat = group.parameters.size() == 1 ? alias(gradients_, {group.numel}, {1})
                                               : empty(context_, Op::flatten, {group.numel}, dtype_, Role::gradient);
    group.master->grad = to(flat, DType::float32);
  }
  share(group.master->grad, group, Role::gradient);
  unscale_and_clip(norm);
  optimizer_->step_group(index);
  group.master->grad.reset();
}

void DeepSpeedZeroOptimizerStage3::step() {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  coordinator_->release_all();
  if (offloads_optimizer()) {
    if (dtype_ == DType::float16) const Tensor overflow = empty(context_, Op::to_copy, {1}, DType::uint8);
    for (const Group& group : groups_) offloaded_group_norm(group);
    for (std::size_t i = 0; i < groups_on_device(); ++i) {
      backup_parameter_.reset();
      optimizer_->step_group(i);
    }
    offloaded_norms_.clear();
    coordinator_->gather_persistent();
    return;
  }
  if (dtype_ == DType::float16) check_overflow();
  TensorList norms;
  for (const Group& group : groups_) norms.push_back(group_norm(group));
  Tensor norm, unscaled;
  if (context_.behaviours.zero_checks_overflow_always) {
    norm = combine_norms(norms);
    unscaled = scalar(context_, Op::div, norm.dtype());
  } else if (!context_.behaviours.zero_norm_on_host) {
    // get_global_norm (0.14.4): a sum of squares; its root is a number.
    Tensor total;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const Tensor square = scalar(context_, Op::pow, DType::float64);
      if (!total) total = scalar(context_, Op::add, DType::float64);
    }
  }
  for (std::size_t i = 0; i < groups_.size(); ++i) step_group(i, norm);
  coordinator_->gather_persistent();
  global_grad_norm_ = std::move(unscaled);  // the engine keeps it until the next step's
  losses_.reset();
}

}  // namespace oometer
