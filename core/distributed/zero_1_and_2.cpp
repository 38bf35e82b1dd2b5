#include "distributed/zero_1_and_2.h"

#include <algorithm>

#include "ops/ops.h"
#include "tensor/kernel.h"

namespace oometer {

namespace {

constexpr std::uint8_t kReductionStream = 1;

}  // namespace

void DeepSpeedZeroOptimizer::GradientList::release() {
  // CPython takes a list apart from its end. The places stay: a repetition fills them.
  for (auto tensor = tensors.rbegin(); tensor != tensors.rend(); ++tensor) tensor->reset();
}

DeepSpeedZeroOptimizer::DeepSpeedZeroOptimizer(Context& context, Model& model, const TrainingConfig& training,
                                               const ParallelConfig& parallel, std::int64_t usable_bytes)
    : DeepSpeedTrainer(context, model, training, parallel),
      partitions_gradients_(config_.zero_stage == 2),
      usable_bytes_(usable_bytes),
      wanted_rank_(parallel.rank) {
  if (!partitions_gradients_ && context.behaviours.zero1_reduces_after_backward)
    config_.overlap_comm = config_.contiguous_gradients = config_.round_robin_gradients = false;
  if (offloads_optimizer()) config_.contiguous_gradients = true;
}

DeepSpeedZeroOptimizer::~DeepSpeedZeroOptimizer() { context_.forget(*this); }

std::uint8_t DeepSpeedZeroOptimizer::reduction_stream() const {
  return config_.overlap_comm ? kReductionStream : context_.stream;
}

// --- initialisation --------------------------------------------------------------------------------------------------

void DeepSpeedZeroOptimizer::initialize() {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  if (config_.casts_weights)
    cast_module(context_, model_, dtype_);
  else
    refuse_half_gradients();
  states_of_whole_ = states_of_basic_optimizer();
  std::vector<FlatLayout> layouts;
  for (std::vector<Parameter>& parameters : parameter_groups(model_.parameters, training_.optimizer.param_groups)) {
    Group& group = groups_.emplace_back();
    group.parameters = std::move(parameters);
    std::vector<std::int64_t> sizes;
    for (const Parameter& parameter : group.parameters) sizes.push_back(parameter.tensor.numel());
    group.layout = flat_layout(sizes, world_, config_.round_robin_gradients);
    layouts.push_back(group.layout);
  }
  rank_ = wanted_rank_.value_or(worst_rank(layouts));

  optimizer_ = make_optimizer(context_, offloads_optimizer() ? OptimizerConfig() : training_.optimizer);
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    Group& group = groups_[i];
    flatten(group);
    make_master(group);
    for (std::size_t j = 0; j < group.parameters.size(); ++j) {
      group.parameters[j].tensor->index = static_cast<std::uint32_t>(places_.size());
      places_.push_back({i, j});
    }
    if (group.master && !has_states_at_once()) optimizer_->add_group({{group.master, model_.root}});
  }
  if (offloads_optimizer())
    make_offload_buffer();
  else
    initialize_optimizer_states();
  context_.listen(model_.root, *this);
}

std::vector<std::int64_t> DeepSpeedZeroOptimizer::ranks_that_differ() const {
  if (world_ == 1) return {};
  return ranks_to_try(world_, rank_);
}

/// The group's parameters become views of one buffer.
void DeepSpeedZeroOptimizer::flatten(Group& group) {
  const Behaviours& b = context_.behaviours;
  const FlatLayout& layout = group.layout;
  if (b.zero_flattens_on_gpu) context_.empty_cache();
  const std::int64_t flat_bytes = checked_product(layout.padded, element_size(dtype_));
  if (b.zero_flattens_on_gpu && usable_bytes_ - context_.allocated_bytes() >= flat_bytes) {
    // align_dense_tensors, then _flatten_dense_tensors: torch.cat, but of one tensor a mere view.
    Tensor padding;
    if (layout.padded > layout.numel) padding = empty(context_, Op::zeros, {layout.padded - layout.numel}, dtype_);
    if (group.parameters.size() == 1 && !padding)
      group.flat = alias(group.parameters.front().tensor, {layout.padded}, {1});
    else
      group.flat = empty(context_, Op::flatten, {layout.padded}, dtype_, Role::parameter);
  } else {
    for (const Parameter& parameter : group.parameters) {
      // `param.data = torch.empty(1).to(device)`, or the host copy itself (0.12.6, move_to_cpu).
      if (b.zero_leaves_placeholders)
        set_data(parameter.tensor, empty(context_, Op::to_copy, {1}, DType::float32));
      else
        set_data(parameter.tensor, context_.allocate(Op::none, 0, dtype_, {}, Role::parameter));
    }
    context_.empty_cache();
    group.flat = empty(context_, Op::to_copy, {layout.padded}, dtype_, Role::parameter);
  }
  for (std::size_t i = 0; i < group.parameters.size(); ++i)
    context_.share(group.flat, group.parameters[i].module, layout.sizes[i]);
  // _update_model_bit16_weights
  for (const Parameter& parameter : group.parameters) set_data(parameter.tensor, group.flat);
}

/// `partition.detach().clone().to(dtype=torch.float32)`
void DeepSpeedZeroOptimizer::make_master(Group& group) {
  Tensor partition = empty(context_, Op::clone, {group.layout.partition}, dtype_);
  if (offloads_optimizer()) {
    // param_buffer_of_bit16_for_cpu_offload_groups is among them; the optimizer's own states are never pinned.
    const bool pinned = config_.pins_optimizer;
    const std::int64_t fp32 = checked_product(group.layout.partition, 4);
    host_.keep(HostPart::master_weights, fp32, pinned);
    host_.keep(HostPart::weight_copies, checked_product(group.layout.partition, element_size(dtype_)), pinned);
    host_.keep(HostPart::gradients, fp32, pinned);
    host_.keep(HostPart::optimizer_states, checked_product(fp32, states_per_parameter(training_.optimizer)));
    // accumulated_grads_in_cpu: whole gradients of what lies in the partition.
    if (training_.gradient_accumulation_steps > 1)
      for (std::size_t i = 0; i < group.layout.sizes.size(); ++i)
        if (group.layout.touches(i, rank_))
          host_.keep(HostPart::gradient_sums, checked_product(group.layout.sizes[i], element_size(dtype_)), pinned);
    return;
  }
  group.master = to(partition, DType::float32);
  partition.reset();
  context_.set_role(group.master, Role::optimizer_state, model_.root);
  for (std::size_t i = 0; i < group.parameters.size(); ++i)
    context_.share(group.master, group.parameters[i].module, group.layout.share(i, rank_));
}

/// temp_grad_buffer_for_gpu_offload, and the one for the CPU: as large as the largest gradient.
void DeepSpeedZeroOptimizer::make_offload_buffer() {
  std::int64_t largest = 0;
  for (const Group& group : groups_)
    for (const std::int64_t numel : group.layout.sizes) largest = std::max(largest, numel);
  offload_buffer_ = empty(context_, Op::zeros, {largest}, dtype_, Role::gradient);
  host_.keep(HostPart::gradients, offload_buffer_.nbytes(), config_.pins_optimizer);
}

void DeepSpeedZeroOptimizer::initialize_optimizer_states() {
  for (Group& group : groups_) {
    group.master->grad = empty(context_, Op::zeros, {group.layout.partition}, DType::float32);
    context_.set_role(group.master->grad, Role::gradient, model_.root);
  }
  if (has_states_at_once())
    for (const Group& group : groups_) optimizer_->add_group({{group.master, model_.root}});
  else if (context_.behaviours.zero_optimizer_states_at_init)
    optimizer_->step();
  optimizer_->zero_grad();
}

// --- backward --------------------------------------------------------------------------------------------------------

/// setup_buckets. With overlap_comm there are two: one fills while the other is reduced.
void DeepSpeedZeroOptimizer::allocate_buckets() {
  bucket_ = 0;
  buckets_.clear();
  if (!config_.contiguous_gradients) return;
  for (int i = 0; i < (config_.overlap_comm ? 2 : 1); ++i)
    buckets_.push_back(empty(context_, Op::bucket, {config_.reduce_bucket_size}, dtype_, Role::gradient));
}

/// process_gradients. Stage 1 reduces in the last micro-step only, and without overlap when backward is over.
void DeepSpeedZeroOptimizer::gradient_ready(const Tensor& tensor) {
  if (tensor->index == kNever) return;
  const Place place = places_[tensor->index];
  const ModuleScope scope(context_, model_.root);
  // The flat buffer belongs to the model; the gradient is still its parameter's.
  context_.set_role(tensor->grad, Role::gradient, parameter(place).module);
  if (buckets_.empty()) allocate_buckets();
  if (partitions_gradients_ || (config_.overlap_comm && last_micro_step_)) add_to_bucket(place);
}

/// reduce_independent_p_g_buckets_and_remove_grads
void DeepSpeedZeroOptimizer::add_to_bucket(const Place& place) {
  const Tensor& tensor = parameter(place).tensor;
  const std::int64_t numel = tensor.numel();
  if (bucket_elements_ + numel > config_.reduce_bucket_size) {
    reduce_bucket();
    if (config_.contiguous_gradients && config_.overlap_comm) bucket_ = 1 - bucket_;
  }
  if (config_.contiguous_gradients) {
    if (numel > config_.reduce_bucket_size) {
      extra_large_ = true;  // stays where it is, or in a copy of its own
      if (offloads_optimizer()) set_data(tensor->grad, empty_like(Op::clone, tensor->grad));
    } else
      set_data(tensor->grad, buckets_[bucket_]);
  }
  bucket_elements_ += numel;
  bucket_places_.push_back(place);
}

/// average_tensor: the bucket is cut by the ranks that own its parts; the parts are joined, reduced and put back.
void DeepSpeedZeroOptimizer::average(const Tensor& bucket) {
  const Scoped<std::uint8_t> stream(context_.stream, reduction_stream());
  if (offloads_optimizer()) context_.record_stream(bucket, context_.stream);  // _record_gradient_stream
  const auto all_reduce = [&](std::int64_t elements) {
    collective(context_, Op::all_reduce, checked_product(elements, element_size(dtype_)), dtype_, world_);
  };
  if (!config_.reduce_scatter) return all_reduce(bucket_elements_);  // in place
  const bool records = config_.overlap_comm && context_.behaviours.zero_records_streams;
  std::int64_t slices = 0, numel = 0;
  bool mine = false;
  // allreduce_bucket: `flatten` copies, unless there is but one slice (_flatten_dense_tensors: then a view of it).
  const auto flush = [&] {
    if (slices == 0) return;
    if (slices > 1) const Tensor flat = empty(context_, Op::flatten, {numel}, dtype_, Role::gradient);
    all_reduce(numel);
    if (records && (slices == 1 || mine)) context_.record_stream(bucket, kReductionStream);
    slices = numel = 0;
    mine = false;
  };
  // Neighbouring slices of one rank are one.
  std::int64_t run_rank = -1, run_numel = 0;
  const auto end_run = [&] {
    if (run_rank < 0) return;
    ++slices;
    numel += run_numel;
    mine = mine || run_rank == rank_;
    if (numel > config_.reduce_bucket_size) flush();  // allreduce_and_scatter, numel_per_bucket
  };
  for (const Place& place : bucket_places_) {
    const FlatLayout& layout = groups_[place.group].layout;
    for (std::int64_t rank = layout.first_rank(place.index); rank <= layout.last_rank(place.index); ++rank) {
      if (rank != run_rank) {
        end_run();
        run_rank = rank;
        run_numel = 0;
      }
      run_numel += layout.share(place.index, rank);
    }
  }
  end_run();
  flush();
}

/// copy_grads_in_partition: one buffer takes the gradients of all groups.
void DeepSpeedZeroOptimizer::keep_gradient(const Place& place) {
  if (!grads_in_partition_) {
    std::int64_t total = 0;
    for (const Group& group : groups_) total += group.layout.touched(rank_);
    grads_in_partition_ = empty(context_, Op::bucket, {total}, dtype_, Role::gradient);
  }
  set_data(parameter(place).tensor->grad, grads_in_partition_);
}

/// reduce_ipg_grads
void DeepSpeedZeroOptimizer::reduce_bucket() {
  if (bucket_places_.empty()) return;  // no gradient came
  const Behaviours& b = context_.behaviours;
  // Local names that hold an extra-large gradient until the function returns: the tensor, and since 0.16 also a view of
  // its storage, which outlives the move into the partition.
  Tensor local;
  if (extra_large_) {
    const Tensor& gradient = parameter(bucket_places_.front()).tensor->grad;
    local = b.zero_buckets_at_first_gradient ? detach(gradient) : gradient;
    average(gradient);
    extra_large_ = false;
  } else if (config_.contiguous_gradients) {
    average(buckets_[bucket_]);
  } else {
    // buffered_reduce_fallback: the gradients are joined, reduced and copied back.
    clear_reduced();
    collective(context_, Op::all_reduce, checked_product(bucket_elements_, element_size(dtype_)), dtype_, world_);
    if (bucket_places_.size() > 1) {
      const Scoped<std::uint8_t> stream(context_.stream, reduction_stream());
      const Tensor flat = empty(context_, Op::flatten, {bucket_elements_}, dtype_, Role::gradient);
    }
  }
  const Scoped<std::uint8_t> stream(context_.stream, reduction_stream());
  for (const Place& place : bucket_places_) {
    const bool is_mine = groups_[place.group].layout.touches(place.index, rank_);
    if (!is_mine && partitions_gradients_) {
      // What a side stream may still read is let go at the next reduction.
      if (config_.overlap_comm && !config_.contiguous_gradients)
        reduced_.push_back(place);
      else
        parameter(place).tensor->grad.reset();
    } else if (is_mine && offloads_optimizer()) {
      offload_gradient(place);
    } else if (is_mine && config_.contiguous_gradients) {
      keep_gradient(place);
    }
  }
  bucket_places_.clear();
  bucket_elements_ = 0;
}

/// copy_grads_in_partition with the optimizer in host memory. Until the last micro-step the gradients are added up
/// there (async_accumulate_grad_in_cpu_via_gpu), through the buffer; then each is measured, checked and copied as
/// floats.
void DeepSpeedZeroOptimizer::offload_gradient(const Place& place) {
  if (!last_micro_step_) return;
  const Tensor& gradient = parameter(place).tensor->grad;
  const FlatLayout& layout = groups_[place.group].layout;
  const Tensor mine = alias(gradient, {layout.share(place.index, rank_)}, {1});
  {
    const Tensor as_double = to(mine, DType::float64);
    offloaded_norms_.push_back(reduce(Op::linalg_vector_norm, as_double, {0}, false, DType::float64));
  }
  has_inf_or_nan(alias(gradient, {gradient.numel()}, {1}));
  {
    const Tensor as_float = to(mine, DType::float32);
    context_.record_stream(gradient, context_.stream);
  }
  parameter(place).tensor->grad.reset();
}

/// _clear_previous_reduced_grads: gradients of other ranks' partitions.
void DeepSpeedZeroOptimizer::clear_reduced() {
  for (const Place& place : reduced_) parameter(place).tensor->grad.reset();
  reduced_.clear();
}

/// get_all_grad_tensors: zeros stand for what received no gradient.
TensorList DeepSpeedZeroOptimizer::partition_gradients(const Group& group) {
  TensorList gradients;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    if (!group.layout.touches(i, rank_)) continue;
    const Tensor& parameter = group.parameters[i].tensor;
    Tensor gradient = parameter->grad;
    if (!gradient) {
      gradient = empty_like(Op::zeros_like, parameter, dtype_);
      context_.set_role(gradient, Role::gradient, group.parameters[i].module);
    }
    gradients.push_back(std::move(gradient));
  }
  return gradients;
}

/// get_flat_partition(return_tensor_list=True): views, and zeros for what the partition lacks. In the flat order, which
/// round-robin changes, only the last can leave a gap.
DeepSpeedZeroOptimizer::GradientList DeepSpeedZeroOptimizer::flat_partition(const Group& group,
                                                                            const TensorList& gradients) {
  GradientList list;
  std::int64_t size = 0;
  std::size_t next = 0;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) {
    if (!group.layout.touches(i, rank_)) continue;
    list.tensors.push_back(gradients[next++]);
    list.counts.push_back(group.layout.share(i, rank_));
    size += list.counts.back();
  }
  if (size < group.layout.partition) {
    list.tensors.push_back(empty(context_, Op::zeros, {group.layout.partition - size}, dtype_, Role::gradient));
    list.counts.push_back(group.layout.partition - size);
  }
  return list;
}

/// independent_gradient_partition_epilogue, then the parameters' gradients are let go.
void DeepSpeedZeroOptimizer::backward_epilogue(bool last_micro_step) {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  if (!partitions_gradients_ && !last_micro_step) return;
  if (!partitions_gradients_ && !config_.overlap_comm)  // reduce_gradients
    for (std::size_t i = 0; i < groups_.size(); ++i)
      for (std::size_t j = 0; j < groups_[i].parameters.size(); ++j)
        if (groups_[i].parameters[j].tensor->grad) add_to_bucket({i, j});
  reduce_bucket();
  clear_reduced();
  {
    // From the second micro-step on gradients are added to the first one's; the new ones are a local name.
    TensorList added;
    GradientList added_list;
    for (Group& group : groups_) {
      if (offloads_optimizer()) break;
      if (context_.behaviours.zero_buckets_at_first_gradient) {
        TensorList gradients = partition_gradients(group);
        (group.accumulated.empty() ? group.accumulated : added) = std::move(gradients);
        if (!last_micro_step) continue;
        group.averaged = flat_partition(group, group.accumulated);
        group.accumulated.clear();
      } else {
        GradientList gradients = flat_partition(group, partition_gradients(group));
        (group.averaged.empty() ? group.averaged : added_list) = std::move(gradients);
      }
    }
    buckets_.clear();
    grads_in_partition_.reset();
    for (Group& group : groups_)
      for (Parameter& parameter : group.parameters) parameter.tensor->grad.reset();
  }
}

// --- step ------------------------------------------------------------------------------------------------------------

/// From one backward's end to the next one's only the partition's gradients and the losses are kept.
std::optional<std::vector<Tensor*>> DeepSpeedZeroOptimizer::left_by_backward() {
  if (offloads_optimizer()) return std::nullopt;  // each gradient's norm
  std::vector<Tensor*> left{&losses_};
  for (Group& group : groups_)
    for (Tensor& gradient : group.averaged.tensors) left.push_back(&gradient);
  return left;
}

/// utils.py, has_inf_or_nan (0.19.8): isfinite(x.amax()) and isfinite(x.amin()); `x` is flat.
void DeepSpeedZeroOptimizer::has_inf_or_nan(const Tensor& x) {
  Tensor largest = reduce(Op::maximum, x, {0}, false, x.dtype());
  Tensor first = is_finite(largest);
  largest.reset();
  Tensor smallest = reduce(Op::maximum, x, {0}, false, x.dtype());
  Tensor second = is_finite(smallest);
  smallest.reset();
  Tensor both = scalar(context_, Op::bitwise_and, DType::boolean);
  first.reset();
  second.reset();
  const Tensor invalid = scalar(context_, Op::logical_not, DType::boolean);
  both.reset();
}

/// has_overflow: is any gradient of the partition not finite?
void DeepSpeedZeroOptimizer::check_overflow() {
  const Behaviours& b = context_.behaviours;
  if (!b.zero_checks_overflow_always && training_.precision != Precision::fp16) return;
  Tensor count, overflow;
  if (!b.zero_norm_on_host) count = empty(context_, Op::zeros, {1}, DType::float32);
  for (const Group& group : groups_) {
    for (std::size_t i = 0; i < group.averaged.tensors.size(); ++i) {
      const Tensor gradient = alias(group.averaged.tensors[i], {group.averaged.counts[i]}, {1});
      if (b.zero_checks_overflow_always) {
        has_inf_or_nan(gradient);
      } else {
        // _has_inf_or_nan (0.12.6, 0.14.4) works on a float copy of each gradient.
        const Tensor as_float = to(gradient, DType::float32);
        if (b.zero_norm_on_host) {
          const Tensor total = reduce(Op::sum, as_float, {0}, false, DType::float32);
          continue;
        }
        const Tensor nan = empty_like(Op::ne, as_float, DType::boolean);
        const Tensor inf = is_infinite(as_float);
        const Tensor either = empty_like(Op::add, as_float, DType::boolean);
        const Tensor as_number = empty_like(Op::to_copy, either, DType::float32);
        const Tensor most = reduce(Op::maximum, as_number, {0}, false, DType::float32);
      }
    }
  }
  if (!b.zero_norm_on_host) overflow = empty(context_, Op::to_copy, {1}, DType::boolean);
  count.reset();
  const Tensor as_byte = empty(context_, Op::to_copy, {1}, DType::uint8);
  overflow.reset();
}

/// get_grad_norm_direct: each gradient goes through a float64 copy (get_norm_dtype).
Tensor DeepSpeedZeroOptimizer::group_norm(const Group& group) {
  const Behaviours& b = context_.behaviours;
  // zip(gradients, params) leaves out the zeros behind the last gradient.
  std::size_t count = 0;
  for (std::size_t i = 0; i < group.parameters.size(); ++i) count += group.layout.touches(i, rank_) ? 1 : 0;
  TensorList norms;
  Tensor last;
  for (std::size_t i = 0; i < count; ++i) {
    const Tensor gradient = alias(group.averaged.tensors[i], {group.averaged.counts[i]}, {1});
    Tensor norm;
    {
      const Tensor as_double = to(gradient, DType::float64);
      norm = reduce(Op::linalg_vector_norm, as_double, {0}, false, DType::float64);
    }
    if (b.zero_norm_on_host)
      last = std::move(norm);
    else
      norms.push_back(std::move(norm));
  }
  if (b.zero_norm_on_host) {
    const Tensor total = empty(context_, Op::to_copy, {1}, DType::float32);
    return {};
  }

  Tensor total;
  if (norms.empty()) {
    total = scalar(context_, Op::to_copy, DType::float32);
  } else {
    Tensor stacked = empty(context_, Op::stack, {static_cast<std::int64_t>(norms.size())}, DType::float64);
    Tensor squared = empty_like(Op::pow, stacked);
    stacked.reset();
    const Tensor sum = reduce(Op::sum, squared, {0}, false, DType::float64);
    squared.reset();
    total = scalar(context_, Op::to_copy, DType::float32);
  }
  total = scalar(context_, Op::pow, DType::float32);

  // mask_nan_or_inf_with_val_inplace; before 0.16 a new tensor was made of it.
  Tensor infinite = is_infinite(total);
  Tensor nan = scalar(context_, Op::ne, DType::boolean);
  Tensor invalid = scalar(context_, Op::add, DType::boolean);
  Tensor error = scalar(context_, Op::to_copy, DType::float32);
  const auto release_masks = [&] {
    infinite.reset();
    nan.reset();
    invalid.reset();
    error.reset();
  };
  if (b.zero_checks_overflow_always) {
    release_masks();
  } else {
    Tensor masked = scalar(context_, Op::mul, DType::float32);
    Tensor valid = scalar(context_, Op::logical_not, DType::boolean);
    Tensor kept = scalar(context_, Op::mul, DType::float32);
    valid.reset();
    Tensor sum = scalar(context_, Op::add, DType::float32);
    masked.reset();
    kept.reset();
    total = std::move(sum);
  }
  norms.clear();
  release_masks();
  return total;
}

/// scaled_global_norm. Null where it is a number on the host.
Tensor DeepSpeedZeroOptimizer::global_norm() {
  TensorList norms;
  for (const Group& group : groups_) norms.push_back(group_norm(group));
  if (context_.behaviours.zero_norm_on_host) return {};
  return combine_norms(norms);
}

void DeepSpeedZeroOptimizer::step_group(std::size_t index, const Tensor& norm) {
  Group& group = groups_[index];
  const std::int64_t partition = group.layout.partition;
  // flatten: torch.cat, but of one tensor a mere view.
  Tensor flat = group.averaged.tensors.size() == 1 ? alias(group.averaged.tensors.front(), {partition}, {1})
                                                   : empty(context_, Op::flatten, {partition}, dtype_, Role::gradient);
  group.master->grad = to(flat, DType::float32);
  context_.set_role(group.master->grad, Role::gradient, model_.root);
  flat.reset();
  group.averaged.release();
  unscale_and_clip(norm);
  optimizer_->step_group(index);
  group.master->grad.reset();
}

/// all_gather_dp_groups: each rank's updated partition to all.
void DeepSpeedZeroOptimizer::gather_partitions() {
  for (const Group& group : groups_)
    collective(context_, Op::all_gather, checked_product(group.layout.padded, element_size(dtype_)), dtype_, world_);
}

void DeepSpeedZeroOptimizer::step() {
  const NoGrad no_grad(context_);
  const ModuleScope scope(context_, model_.root);
  if (offloads_optimizer()) {
    // has_overflow's ByteTensor, complete_grad_norm_calculation_for_cpu_offload's FloatTensor a group: the rest is done
    // by the CPU.
    { const Tensor overflow = empty(context_, Op::to_copy, {1}, DType::uint8); }
    for (std::size_t i = 0; i < groups_.size(); ++i)
      const Tensor total = empty(context_, Op::to_copy, {1}, DType::float32);
    offloaded_norms_.clear();
    gather_partitions();
    losses_.reset();
    return;
  }
  check_overflow();
  Tensor norm = global_norm();
  Tensor unscaled = norm ? scalar(context_, Op::div, DType::float32) : Tensor();
  for (std::size_t i = 0; i < groups_.size(); ++i) step_group(i, norm);
  gather_partitions();
  norm.reset();
  // The engine keeps the norm until the next step's.
  global_grad_norm_ = std::move(unscaled);
  losses_.reset();
}

}  // namespace oometer
