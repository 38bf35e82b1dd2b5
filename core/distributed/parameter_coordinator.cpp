#include "distributed/parameter_coordinator.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "tensor/kernel.h"

namespace oometer {

namespace {

using Status = ZeroParameter::Status;

void insert_sorted(std::vector<std::uint32_t>& items, std::uint32_t item) {
  const auto at = std::lower_bound(items.begin(), items.end(), item);
  if (at == items.end() || *at != item) items.insert(at, item);
}

/// Finds a module among those whose backward has begun.
auto is_of(ModuleId module) {
  return [module](const auto& active) { return active.module == module; };
}

/// DEFAULT_LEAF_MODULE_CLASSES (runtime/zero/leaf_module_config.py, since 0.18): blocks of experts, whose order of
/// modules depended on the routing once.
bool is_leaf_by_default(std::string_view type) {
  return type == "MixtralSparseMoeBlock" || type == "Qwen2MoeSparseMoeBlock" || type == "Qwen3MoeSparseMoeBlock";
}

/// Of a set of few, in no order.
template <class Set>
void include(Set& set, ModuleId module) {
  for (unsigned i = 0; i < set.size(); ++i)
    if (set[i] == module) return;
  set.push_back(module);
}

template <class Set>
void exclude(Set& set, ModuleId module) {
  for (unsigned i = 0; i < set.size(); ++i)
    if (set[i] == module) {
      set[i] = set[set.size() - 1];
      return set.resize(set.size() - 1);
    }
}

}  // namespace

ParameterCoordinator::ParameterCoordinator(Context& context, ModuleId root, const DeepSpeedConfig& config,
                                           std::int64_t world, std::uint8_t stream,
                                           std::vector<ZeroParameter> parameters)
    : context_(context),
      root_(root),
      config_(config),
      world_(world),
      stream_(stream),
      parameters_(std::move(parameters)),
      states_(parameters_.size()),
      of_module_(context.log.modules.size()),
      wrapped_(context.log.modules.size()),
      counts_gradients_(context.log.modules.size(), true),
      leaf_of_(context.log.modules.size(), kNever) {
  const Log& log = context_.log;
  for (ModuleId id = 0; id < leaf_of_.size(); ++id) {
    if (!log.is_root(id)) leaf_of_[id] = leaf_of_[log.modules[id].parent];
    if (leaf_of_[id] == kNever && is_leaf_by_default(log.modules[id].type)) leaf_of_[id] = id;
  }
  for (Index i = 0; i < parameters_.size(); ++i) {
    parameters_[i].tensor->index = i;
    const ModuleId module = parameters_[i].module;
    of_module_.add(leaf_of_[module] == kNever ? module : leaf_of_[module], i);
  }
  context_.listen(root_, *this);
}

ParameterCoordinator::~ParameterCoordinator() { context_.forget(*this); }

std::span<const ParameterCoordinator::Index> ParameterCoordinator::OfModule::operator[](ModuleId module) const {
  if (module == kNever) return {};
  return std::span(items_).subspan(rows_[module].begin, rows_[module].size);
}

void ParameterCoordinator::OfModule::add(ModuleId module, Index index) {
  Row& row = rows_[module];
  if (row.begin + row.size != items_.size()) {  // there is room behind the last row only
    const std::size_t from = std::exchange(row.begin, items_.size());
    for (std::size_t k = 0; k < row.size; ++k) items_.push_back(items_[from + k]);
  }
  items_.push_back(index);
  ++row.size;
}

void ParameterCoordinator::add_use(ModuleId module, const Tensor& parameter) {
  of_module_.add(module, index_of(parameter));
  tied_.emplace_back(module, index_of(parameter));
}

void ParameterCoordinator::OfModule::remove(ModuleId module, Index index) {
  Row& row = rows_[module];
  const auto begin = items_.begin() + static_cast<std::ptrdiff_t>(row.begin);
  const auto end = begin + static_cast<std::ptrdiff_t>(row.size);
  row.size = static_cast<std::size_t>(std::remove(begin, end, index) - begin);
}

// DeepSpeedZeRoOffload.mark_persistent_parameters
void ParameterCoordinator::mark_persistent(const std::vector<Parameter>& model) {
  std::int64_t total = 0;
  for (const Parameter& parameter : model) {
    const Index index = index_of(parameter.tensor);
    const std::int64_t numel = parameters_[index].numel;
    if (numel > config_.param_persistence_threshold || total + numel > config_.model_persistence_threshold) continue;
    if (states_[index].persists) continue;
    states_[index].persists = true;
    persistent_.push_back(index);
    total += numel;
  }
}

// --- the trace -------------------------------------------------------------------------------------------------------

/// runtime/zero/utils.py: the list's length, then the list.
void ParameterCoordinator::assert_ints_same_as_other_ranks(std::size_t count) {
  if (!context_.behaviours.zero_3_trace_ends_in_backward)
    const Tensor length = empty(context_, Op::to_copy, {}, DType::int64);
  if (count > 0) const Tensor list = empty(context_, Op::to_copy, {static_cast<std::int64_t>(count)}, DType::int64);
}

void ParameterCoordinator::reset_step() {
  const ModuleScope scope(context_, root_);
  clean_inflight_registry();
  if (trace_ != Trace::complete) {
    assert_ints_same_as_other_ranks(order_.size());
    if (trace_ == Trace::record)
      finish_trace();
    else
      trace_ = Trace::record;
  }
  next_use_ = step_ = 0;
  available_ = 0;
  for (State& state : states_) {
    state.last_fetched_for = -1;
    state.next_use = state.first_use;
  }
}

/// construct_parameter_trace_from_module_trace
void ParameterCoordinator::finish_trace() {
  std::int64_t traversed = 0;
  for (std::uint32_t step = 0; step < order_.size(); ++step) {
    traversed_.push_back(traversed);
    const auto first = static_cast<std::ptrdiff_t>(uses_.size());
    for (const Index index : of_module_[order_[step]]) {
      const auto at = std::upper_bound(uses_.begin() + first, uses_.end(), index,
                                       [](Index i, const Use& use) { return i < use.parameter; });
      uses_.insert(at, {index, step, kNever});
      if (leaf_of(index) == kNever) traversed += parameters_[index].numel;
    }
  }
  trace_subtrees();
  for (auto i = static_cast<std::uint32_t>(uses_.size()); i-- > 0;)
    uses_[i].next = std::exchange(states_[uses_[i].parameter].first_use, i);
  assert_ints_same_as_other_ranks(uses_.size());
  assert_ints_same_as_other_ranks(uses_.size());
  trace_ = Trace::complete;
}

/// __params_to_release looks for a leaf's parameters in everything within the modules that come, not just in their own.
void ParameterCoordinator::trace_subtrees() {
  const Log& log = context_.log;
  std::vector<std::int64_t> numel(log.modules.size());
  std::vector<Index> counted(log.modules.size(), kNever);
  const auto count = [&](ModuleId module, Index index) {
    for (; counted[module] != index; module = log.modules[module].parent) {
      counted[module] = index;
      numel[module] += parameters_[index].numel;
      if (log.is_root(module)) return;
    }
  };
  for (Index i = 0; i < parameters_.size(); ++i) {
    count(parameters_[i].module, i);
    for (const auto& [module, tied] : tied_)
      if (tied == i) count(module, i);
  }
  for (ModuleId id = 0; id < leaf_of_.size(); ++id)
    if (leaf_of_[id] == id) of_leaf_[id];
  std::int64_t traversed = 0;
  for (std::size_t step = 0; step < order_.size(); ++step) {
    traversed_subtrees_.push_back(traversed);
    ModuleId module = order_[step];
    if (module == kNever && step + 1 < order_.size()) {
      // PeftModel around the model, ModulesToSaveWrapper around a module; else it has no parameters.
      const ModuleId next = order_[step + 1];
      if (next == root_ || (next != kNever && wrapped_[next])) module = next;
    }
    if (module == kNever) continue;
    traversed += numel[module];
    for (auto& [leaf, steps] : of_leaf_) {
      ModuleId above = leaf;
      while (above != module && !log.is_root(above)) above = log.modules[above].parent;
      if (above == module) steps.push_back(step);
    }
  }
}

bool ParameterCoordinator::is_leaf_reused_soon(ModuleId leaf) const {
  const std::vector<std::size_t>& steps = of_leaf_.at(leaf);
  const auto next = std::lower_bound(steps.begin(), steps.end(), step_);
  return next != steps.end() && traversed_subtrees_[*next] - traversed_subtrees_[step_] < config_.max_reuse_distance;
}

void ParameterCoordinator::invalidate_trace() {
  trace_ = Trace::invalid;
  order_.clear();
  traversed_.clear();
  traversed_subtrees_.clear();
  of_leaf_.clear();
  uses_.clear();
  for (Index i = 0; i < states_.size(); ++i) {
    states_[i].first_use = kNever;
    states_[i].last_fetched_for = -1;
  }
  clean_inflight_registry();
}

// --- gathering -------------------------------------------------------------------------------------------------------

void ParameterCoordinator::begin_gather(Index index, const std::shared_ptr<AllGather>& gather) {
  parameters_[index].status = Status::inflight;
  states_[index].gather = gather;
  inflight_.push_back(index);
  available_ += parameters_[index].numel;
}

/// Into its own memory. With one rank (NoGatherHandle, NoGatherCoalescedHandle) the partition is the parameter, unless
/// it comes from host memory.
void ParameterCoordinator::gather_alone(Index index) {
  const ZeroParameter& parameter = parameters_[index];
  if (world_ == 1 && parameter.partition) return set_data(parameter.tensor, parameter.partition);
  set_data(parameter.tensor, parameter_memory(context_, parameter, checked_product(parameter.partition_numel, world_)));
  collective(context_, Op::all_gather, parameter.tensor->storage->bytes, parameter.tensor.dtype(), world_);
  if (world_ > 1 && !parameter.partition)
    const Storage copy = parameter_memory(context_, parameter, parameter.partition_numel);
}

/// all_gather_coalesced: one parameter into its own memory, several into a buffer (each type into one of its own) from
/// which they are copied when the first of them is waited for.
void ParameterCoordinator::all_gather(std::span<const Index> needed) {
  const auto is_wanted = [&](Index i) { return parameters_[i].status == Status::not_available; };
  const auto count = static_cast<std::size_t>(std::count_if(needed.begin(), needed.end(), is_wanted));
  if (count == 0) return;
  const Scoped<std::uint8_t> stream(context_.stream, stream_);
  if (count == 1) {
    const Index index = *std::find_if(needed.begin(), needed.end(), is_wanted);
    begin_gather(index, of_one_);
    return gather_alone(index);
  }
  const auto dtype_of = [&](Index i) { return parameters_[i].tensor.dtype(); };
  // Those in half precision first.
  const auto comes_before = [&](Index a, Index b) {
    const bool half_a = is_half(dtype_of(a)), half_b = is_half(dtype_of(b));
    return half_a != half_b ? half_a : a < b;
  };
  const auto gather = std::make_shared<AllGather>();
  std::vector<Index>& wanted = gather->parameters;
  wanted.reserve(count);
  for (const Index i : needed)
    if (is_wanted(i)) wanted.insert(std::upper_bound(wanted.begin(), wanted.end(), i, comes_before), i);
  for (const Index i : wanted) begin_gather(i, gather);
  if (world_ == 1 || config_.allgather_sequential) {
    for (const Index i : wanted) gather_alone(i);
    gather->is_complete = true;
    return;
  }
  for (std::size_t begin = 0, end = 0; begin < count; begin = end) {
    const DType dtype = dtype_of(wanted[begin]);
    std::int64_t numel = 0;
    for (; end < count && dtype_of(wanted[end]) == dtype; ++end)
      numel += checked_product(parameters_[wanted[end]].partition_numel, world_);
    const Tensor& buffer = gather->buffers.emplace_back(empty(context_, Op::empty, {numel}, dtype, Role::parameter));
    collective(context_, Op::all_gather, buffer.nbytes(), dtype, world_);
    List<Storage> copies;
    for (std::size_t k = begin; k < end; ++k) {
      const ZeroParameter& parameter = parameters_[wanted[k]];
      context_.share(buffer, parameter.module, checked_product(parameter.partition_numel, world_));
    }
    for (std::size_t k = begin; k < end; ++k) {
      const ZeroParameter& parameter = parameters_[wanted[k]];
      if (!parameter.partition) copies.push_back(parameter_memory(context_, parameter, parameter.partition_numel));
    }
  }
}

/// _clean_inflight_param_registry, on the stream that computes. The handles are let go together.
void ParameterCoordinator::clean_inflight_registry() {
  const std::vector<Index> inflight = inflight_;
  std::vector<std::shared_ptr<AllGather>> handles;
  for (const Index i : inflight) {
    handles.push_back(states_[i].gather);
    wait(i);
    release(i);
  }
}

/// AllGatherCoalescedHandle.wait
void ParameterCoordinator::wait(Index index) {
  const std::shared_ptr<AllGather> gather = std::move(states_[index].gather);
  const auto arrive = [&](Index i) {
    if (parameters_[i].status == Status::inflight) parameters_[i].status = Status::available;
  };
  inflight_.erase(std::find(inflight_.begin(), inflight_.end(), index));
  if (gather == of_one_) return arrive(index);
  if (!gather->is_complete) {
    for (const Index i : gather->parameters) {
      const Tensor& tensor = parameters_[i].tensor;
      set_data(tensor, parameter_memory(context_, parameters_[i], parameters_[i].numel));
      kernel(Op::copy, {&tensor}, tensor);
    }
    if (context_.stream != stream_)
      for (const Tensor& buffer : gather->buffers) context_.record_stream(buffer, context_.stream);
  }
  gather->is_complete = true;
  std::for_each(gather->parameters.begin(), gather->parameters.end(), arrive);
}

void ParameterCoordinator::gather_now(std::span<const Index> wanted) {
  std::vector<ZeroParameter*> parameters;
  parameters.reserve(wanted.size());
  for (const Index i : wanted) parameters.push_back(&parameters_[i]);
  gather_parameters(context_, parameters, world_);
}

void ParameterCoordinator::gather_by_module() {
  std::vector<std::pair<ModuleId, Index>> uses = tied_;
  for (Index i = 0; i < parameters_.size(); ++i) uses.emplace_back(parameters_[i].module, i);
  std::sort(uses.begin(), uses.end());
  std::vector<Index> own;
  for (auto use = uses.begin(); use != uses.end();) {
    const ModuleId module = use->first;
    const ModuleScope scope(context_, module);
    for (own.clear(); use != uses.end() && use->first == module; ++use) own.push_back(use->second);
    gather_now(own);
    for (const Index i : own) release_parameter(parameters_[i]);
  }
}

void ParameterCoordinator::release(Index index) {
  ZeroParameter& parameter = parameters_[index];
  if (parameter.status != Status::available || states_[index].active_modules.size() > 0) return;
  release_parameter(parameter);
  available_ -= parameter.numel;
}

void ParameterCoordinator::gather_persistent() { gather_now(persistent_); }

void ParameterCoordinator::release_all() {
  for (Index i = 0; i < states_.size(); ++i) {
    if (states_[i].gather) wait(i);
    states_[i].active_modules.clear();
    release(i);
  }
}

// --- modules ---------------------------------------------------------------------------------------------------------

/// fetch_sub_module, after trace_prologue and record_module
void ParameterCoordinator::fetch(ModuleId module, bool forward) {
  if (trace_ == Trace::complete && (step_ >= order_.size() || order_[step_] != module)) invalidate_trace();
  if (trace_ == Trace::record) order_.push_back(module);
  if (!forward && module != kNever) {
    const auto again = std::find_if(active_backward_.begin(), active_backward_.end(), is_of(module));
    if (again == active_backward_.end())
      active_backward_.push_back({module, {}});
    else
      std::rotate(again, again + 1, active_backward_.end());
  }
  const std::span<const Index> needed = of_module_[module];
  if (!needed.empty()) all_gather(needed);
  for (const Index i : needed) {
    include(states_[i].active_modules, module);
    // A frozen parameter that a recomputation needs goes when the module does whose backward made it run again.
    if (context_.behaviours.zero_3_keeps_recomputed && forward && context_.in_backward && !active_backward_.empty() &&
        !parameters_[i].tensor->leaf_requires_grad) {
      insert_sorted(active_backward_.back().recompute, i);
      include(states_[i].active_modules, active_backward_.back().module);
    }
    if (!states_[i].gather) continue;
    const Scoped<std::uint8_t> stream(context_.stream, stream_);
    wait(i);
  }
  if (trace_ == Trace::complete) {
    // What this module needs is not gathered ahead any more.
    const auto is_new = [&](Index i) { return states_[i].last_fetched_for < static_cast<std::int64_t>(step_); };
    auto remaining = std::count_if(needed.begin(), needed.end(), is_new);
    for (; remaining > 0 && next_use_ < uses_.size(); --remaining) {
      const Use& use = uses_[next_use_++];
      if (std::find(needed.begin(), needed.end(), use.parameter) == needed.end()) {
        refusal_ =
            Error{"refused", "/parallel",
                  "DeepSpeed fails with a \"tracing error\": the modules do not run in the order of the first step"};
      }
      states_[use.parameter].last_fetched_for = use.step;
    }
    prefetch();
  }
  ++step_;
}

void ParameterCoordinator::prefetch() {
  if (config_.prefetch_bucket_size <= 0) return;
  const std::int64_t most = std::min(config_.max_live_parameters - available_, config_.prefetch_bucket_size);
  std::vector<Index>& wanted = prefetched_;
  wanted.clear();
  std::int64_t numel = 0;
  while (next_use_ < uses_.size() && numel < most) {
    const Use& use = uses_[next_use_++];
    State& state = states_[use.parameter];
    state.last_fetched_for = std::max<std::int64_t>(state.last_fetched_for, use.step);
    if (parameters_[use.parameter].status != Status::not_available ||
        std::find(wanted.begin(), wanted.end(), use.parameter) != wanted.end())
      continue;
    wanted.push_back(use.parameter);
    numel += parameters_[use.parameter].numel;
  }
  if (!wanted.empty()) all_gather(wanted);
}

/// __params_to_release: not what is needed again within max_reuse_distance elements.
bool ParameterCoordinator::is_reused_soon(Index index) {
  State& state = states_[index];
  if (state.last_fetched_for > static_cast<std::int64_t>(step_)) return true;
  if (leaf_of(index) != kNever) return is_leaf_reused_soon(leaf_of(index));
  while (state.next_use != kNever && uses_[state.next_use].step < step_) state.next_use = uses_[state.next_use].next;
  return state.next_use != kNever &&
         traversed_[uses_[state.next_use].step] - traversed_[step_] < config_.max_reuse_distance;
}

/// Its lru_cache answers for a module at a step as it did first, whatever trace has come since.
std::span<const ParameterCoordinator::Index> ParameterCoordinator::params_to_release(ModuleId module) {
  if (first_release_.size() <= step_) first_release_.resize(step_ + 1, kNever);
  std::uint32_t* at = &first_release_[step_];
  while (*at != kNever && releases_[*at].module != module) at = &releases_[*at].next;
  const std::uint32_t which = *at != kNever ? *at : static_cast<std::uint32_t>(releases_.size());
  if (*at == kNever) {
    *at = which;
    const std::size_t begin = released_.size();
    for (const Index i : of_module_[module])
      if (!states_[i].persists && !is_reused_soon(i)) released_.push_back(i);
    releases_.push_back({module, begin, released_.size(), kNever});
  }
  return std::span(released_).subspan(releases_[which].begin, releases_[which].end - releases_[which].begin);
}

void ParameterCoordinator::release_module(ModuleId module, bool forward) {
  if (module == kNever) return;
  const auto let_go = [&](Index i, bool wanted) {
    exclude(states_[i].active_modules, module);
    if (wanted) release(i);
  };
  const bool is_traced = trace_ == Trace::complete;
  const std::span<const Index> released = is_traced ? params_to_release(module) : std::span<const Index>();
  for (const Index i : of_module_[module])
    let_go(i, !is_traced || std::find(released.begin(), released.end(), i) != released.end());
  if (forward) return;
  const auto active = std::find_if(active_backward_.begin(), active_backward_.end(), is_of(module));
  if (active == active_backward_.end()) return;
  for (const Index i : active->recompute) let_go(i, !states_[i].persists);
  active_backward_.erase(active);
}

void ParameterCoordinator::release_leftovers() {
  while (!active_backward_.empty()) {
    const auto [module, recompute] = std::move(active_backward_.back());
    active_backward_.pop_back();
    const auto let_go = [&, of = module](Index i) {
      exclude(states_[i].active_modules, of);
      if (!states_[i].persists) release(i);
    };
    for (const Index i : of_module_[module]) let_go(i);
    for (const Index i : recompute) let_go(i);
  }
}

// Nothing is called any more in a recomputation that has all it needs.
void ParameterCoordinator::before_forward(ModuleId module) {
  if (context_.stopped) return;
  if (module != kNever) {
    counts_gradients_[module] = context_.grad_mode;
    if (wrapped_[module]) fetch(kNever, true);
  }
  fetch(module, true);
}
void ParameterCoordinator::after_forward(ModuleId module) {
  if (!context_.stopped) release_module(module, true);
}
void ParameterCoordinator::before_backward(ModuleId module) {
  if (module != kNever && wrapped_[module]) fetch(kNever, false);
  fetch(module, false);
}
void ParameterCoordinator::after_backward(ModuleId module) {
  if (module != kNever && leaf_of_[module] == module && leaf_is_through) {
    leaf_is_through(module);
    has_reduced_ = true;
  }
  if (module == kNever || counts_gradients_[module]) release_module(module, false);
}

// _register_deepspeed_module
bool ParameterCoordinator::hears(ModuleId module) const {
  if (module == kNever) return leaf_of_[context_.module] == kNever;
  return leaf_of_[module] == kNever || leaf_of_[module] == module;
}

// ZeROOrderedDict.__getitem__ registers it with the module that is running.
void ParameterCoordinator::read(const Tensor& parameter) {
  if (context_.stopped) return;
  const Index index = index_of(parameter);
  if (parameters_[index].status != Status::not_available) return;
  const std::span<const Index> known = of_module_[context_.module];
  if (std::find(known.begin(), known.end(), index) == known.end()) of_module_.add(context_.module, index);
  gather_now({&index, 1});
}

// --- blocks ----------------------------------------------------------------------------------------------------------

void ParameterCoordinator::begin_block(ModuleId block) {
  blocks_[block].begin = order_.size();
  blocks_[block].first_active = active_backward_.size();
  has_reduced_ = false;
}

/// Nothing of the module's is gathered.
bool ParameterCoordinator::is_untouched(ModuleId module) const {
  const std::span<const Index> needed = of_module_[module];
  return std::all_of(needed.begin(), needed.end(), [&](Index i) {
    return parameters_[i].status == Status::not_available && states_[i].active_modules.size() == 0;
  });
}

bool ParameterCoordinator::end_block(ModuleId block) {
  BlockCalls& calls = blocks_[block];
  calls.end = order_.size();
  calls.last_active = active_backward_.size();
  if (trace_ != Trace::record || calls.last_active < calls.first_active || has_reduced_) return false;
  const auto called = std::span(order_).subspan(calls.begin);
  const auto active = std::span(active_backward_).subspan(calls.first_active);
  return std::all_of(called.begin(), called.end(), [&](ModuleId module) { return is_untouched(module); }) &&
         std::all_of(active.begin(), active.end(), [](const ActiveBackward& left) { return left.recompute.empty(); });
}

bool ParameterCoordinator::repeat_block(const MovedModules& moved) {
  const BlockCalls& calls = blocks_[moved.begin];
  for (std::size_t k = calls.begin; k < calls.end; ++k) {
    const ModuleId like = order_[k], module = moved(like);
    // What the one was found to read of its block, the other reads of its own.
    while (module != like && of_module_[module].size() < of_module_[like].size()) {
      const Index read = of_module_[like][of_module_[module].size()];
      const ModuleId owner = parameters_[read].module;
      const std::span<const Index> of_owner = of_module_[owner];
      const auto place = std::find(of_owner.begin(), of_owner.end(), read) - of_owner.begin();
      of_module_.add(module, of_module_[moved(owner)][static_cast<std::size_t>(place)]);
    }
    if (!is_untouched(module)) return false;
    if (module != kNever) counts_gradients_[module] = counts_gradients_[like];
    order_.push_back(module);
  }
  step_ += calls.end - calls.begin;
  for (std::size_t k = calls.first_active; k < calls.last_active; ++k)
    active_backward_.push_back({moved(active_backward_[k].module), {}});
  return true;
}

}  // namespace oometer
