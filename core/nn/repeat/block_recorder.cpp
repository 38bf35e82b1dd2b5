#include "nn/repeat/block_recorder.h"

#include <algorithm>
#include <utility>

namespace oometer {

BlockRecorder::BlockRecorder(BlockPass& pass)
    : pass_(pass), context_(pass.context), gradients_(pass.context.gradients), modules_(pass.context.modules) {}

void BlockRecorder::start(std::size_t block) {
  parameters_ = pass_.modules.parameters_of(block);
  module_ = pass_.modules.starts[block];
  recording_ = {};
  memory_.clear();
  if (modules_)
    for (const Parameter& parameter : parameters_) memory_.push_back({parameter.tensor.get()});
  look_after_call();
  first_share_ = context_.log.shares.size();
  if (modules_) modules_->begin_block(module_);
  if (gradients_) context_.gradients = this;
  if (modules_) context_.modules = this;
}

void BlockRecorder::stop() {
  if (is_recording()) look_before_call();
  if (context_.gradients == this) context_.gradients = gradients_;
  if (context_.modules == this) context_.modules = modules_;
}

void BlockRecorder::note(RecordedBlock::HookCall noted, const Tensor& parameter) {
  // A recomputation that has stopped has all it needs, and the block holds nothing more.
  if (context_.stopped) return call(noted.hook, noted.of, parameter);
  look_before_call();
  const LogPosition begin = pass_.now();
  call(noted.hook, noted.of, parameter);
  const LogPosition end = pass_.now();
  noted.begin = begin.event;
  noted.end = end.event;
  noted.work = {begin.work, end.work};
  recording_.calls.push_back(noted);
  look_after_call();
}

void BlockRecorder::call(Hook hook, ModuleId of, const Tensor& parameter) {
  switch (hook) {
    case Hook::before_forward:
      return modules_->before_forward(of);
    case Hook::after_forward:
      return modules_->after_forward(of);
    case Hook::before_backward:
      return modules_->before_backward(of);
    case Hook::after_backward:
      return modules_->after_backward(of);
    case Hook::read:
      return modules_->read(parameter);
    case Hook::gradient:
      return gradients_->gradient_ready(parameter);
  }
}

void BlockRecorder::look_before_call() {
  for (ParameterMemory& memory : memory_) {
    if (memory.id == kNever || memory.storage->references == memory.references) continue;
    if (memory.held == 0) {
      memory.hold = recording_.holds.size();
      const auto parameter = static_cast<std::size_t>(&memory - memory_.data());
      recording_.holds.push_back({memory.id, parameter, recording_.calls.size(), kNever, false});
    }
    memory.held += memory.storage->references - memory.references;
    if (memory.held == 0) recording_.holds[memory.hold].until = recording_.calls.size();
  }
}

void BlockRecorder::look_after_call() {
  for (ParameterMemory& memory : memory_) {
    const StorageImpl& storage = *memory.parameter->storage;
    if (storage.id != memory.id) {
      // What was freed in its place (storage.resize_) is no longer there to be held.
      if (memory.held > 0 && memory.storage == &storage) recording_.holds[memory.hold].until = recording_.calls.size();
      if (memory.held > 0 && memory.storage != &storage) recording_.holds[memory.hold].outlives = true;
      memory.held = 0;
      memory.id = storage.id;
    }
    memory.storage = &storage;
    memory.references = storage.references;
  }
}

/// None for a leaf that is no parameter: what a reentrant checkpoint runs again on.
std::optional<RecordedBlock::HookCall> BlockRecorder::describe(Hook hook, const Tensor& parameter) const {
  const auto find = [&](std::span<const Parameter> parameters) {
    return std::find_if(parameters.begin(), parameters.end(),
                        [&](const Parameter& known) { return known.tensor.get() == parameter.get(); }) -
           parameters.begin();
  };
  RecordedBlock::HookCall result = describe(hook);
  result.parameter = static_cast<std::uint32_t>(find(parameters_));
  if (result.parameter < parameters_.size()) return result;
  const std::vector<Parameter>& all = *pass_.modules.parameters;
  if (find(all) < std::ssize(all)) pass_.fail();  // another block's
  return std::nullopt;
}

void BlockRecorder::read(const Tensor& parameter) {
  const std::optional<RecordedBlock::HookCall> described = describe(Hook::read, parameter);
  if (!described) return modules_->read(parameter);
  note(*described, parameter);
}

void BlockRecorder::gradient_ready(const Tensor& parameter) {
  std::optional<RecordedBlock::HookCall> described = describe(Hook::gradient, parameter);
  if (!described) return gradients_->gradient_ready(parameter);
  const Tensor& gradient = parameter->grad;
  described->gradient = gradient->storage->id;
  described->metadata = static_cast<std::uint32_t>(recording_.gradients.size());
  recording_.gradients.emplace_back(gradient);
  note(*described, parameter);
}

std::optional<RecordedBlock> BlockRecorder::take(const LogRange& range, std::size_t block, const Known& known) {
  using Owner = RecordedBlock::Owner;
  const Log& log = context_.log;
  RecordedBlock result = std::move(recording_);
  result.includes_listener = modules_ && modules_->end_block(module_);
  if (result.includes_listener) {
    std::erase_if(result.calls, [](const RecordedBlock::HookCall& call) { return call.hook != Hook::gradient; });
    result.holds.clear();
  }
  const MovedModules itself = pass_.modules.move(block, block);
  std::vector<StorageId> indices(range.storages(), kNever);         // of what the block created
  std::vector<StorageId> gradient_calls(range.storages(), kNever);  // of what a parameter got as its gradient
  StorageId calls = 0;
  WorkMark work = range.begin.work;
  for (std::uint32_t i = range.begin.event;; ++i) {
    for (; calls < result.calls.size() && result.calls[calls].begin == i; ++calls) {
      RecordedBlock::HookCall& call = result.calls[calls];
      call.event = static_cast<std::uint32_t>(result.events.size());
      if (range.created(call.gradient)) {
        call.gradient = indices[call.gradient - range.begin.storage];
        if (call.gradient == kNever) return std::nullopt;  // the listener's
        gradient_calls[call.gradient] = calls;
      } else {
        call.gradient = kNever;
      }
      i = std::exchange(call.end, 0);
      call.begin = 0;
      const WorkRange of_listener = std::exchange(call.work, {});
      result.work.push_back({work, of_listener.begin});
      work = of_listener.end;
    }
    if (i >= range.end.event) break;
    const Event& event = log.events[i];
    const StorageId id = event.storage;
    if (event.kind == EventKind::empty_cache) return std::nullopt;
    if (event.kind == EventKind::free) result.change -= Context::rounded(log.storages[id].bytes);
    if (event.kind == EventKind::alloc) {
      result.change += Context::rounded(log.storages[id].bytes);
      indices[id - range.begin.storage] = static_cast<StorageId>(result.created.size());
      result.created.push_back(id);
    }
    StorageId hold = event.kind == EventKind::free ? 0 : static_cast<StorageId>(result.holds.size());
    while (hold < result.holds.size() && !(result.holds[hold].id == id && result.holds[hold].outlives)) ++hold;
    if (hold < result.holds.size()) {
      result.holds[hold].until = calls;
      result.events.push_back({event, Owner::parameter, hold});
    } else if (range.created(id)) {
      const StorageId index = indices[id - range.begin.storage];
      if (index == kNever) return std::nullopt;  // the listener's
      if (event.kind == EventKind::free && gradient_calls[index] != kNever) {
        result.calls[gradient_calls[index]].frees_gradient = result.frees_gradients = true;
        result.events.push_back({event, Owner::gradient, gradient_calls[index]});
      } else {
        result.events.push_back({event, Owner::created, index});
      }
    } else if (id == known.incoming) {
      result.events.push_back({event, Owner::incoming, 0});
    } else if (id == known.incoming_in_forward) {
      result.events.push_back({event, Owner::incoming_in_forward, 0});
    } else if (const std::optional<StorageId> index = known.created_in_forward.index_of(id)) {
      result.events.push_back({event, Owner::created_in_forward, *index});
    } else {
      return std::nullopt;
    }
    result.events.back().moves = itself.moves(event.module);
    result.events.back().storage_moves = itself.moves(log.storages[id].module);
  }
  result.work.push_back({work, range.end.work});
  for (const Share& share : std::span(log.shares).subspan(first_share_))
    if (const StorageId index = range.created(share.storage) ? indices[share.storage - range.begin.storage] : kNever;
        index != kNever)
      result.shares.push_back({index, share.module, share.elements});
  for (RecordedBlock::ParameterHold& hold : result.holds) {
    hold.id = kNever;
    if (hold.until == kNever) return std::nullopt;
    for (const std::size_t call : {hold.from, hold.until})
      if (call < result.calls.size()) result.calls[call].changes_holds = true;
  }
  return result;
}

}  // namespace oometer
