#include "nn/repeat/replaying_repeater.h"

#include <algorithm>
#include <utility>

namespace oometer {

bool ReplayingRepeater::can_write_forward() {
  forward_ = recorder_.take(pass_.forward_of(pass_.first), pass_.first, {pass_.input_of_first});
  if (!forward_) return false;
  created_.reserve((pass_.last - pass_.first + 1) * forward_->created.size());
  created_ = forward_->created;
  return true;
}

void ReplayingRepeater::write_forward(const RepeatedBlocks& blocks) {
  for (std::size_t i = blocks.begin; i < blocks.end; ++i) {
    pass_.forward[i] = pass_.now();
    write(*forward_, pass_.first, i, forward_input(i), created_);
    pass_.forward[i + 1] = pass_.now();
  }
}

bool ReplayingRepeater::is_forward_same() {
  const std::size_t last = pass_.last;
  const std::optional<RecordedBlock> again = recorder_.take(pass_.forward_of(last), last, {forward_input(last)});
  if (!again || !is_same(pass_, *again, last, *forward_, pass_.first)) return false;
  created_.insert(created_.end(), again->created.begin(), again->created.end());
  return true;
}

std::optional<RecordedBlock> ReplayingRepeater::recorded_backward(const LogRange& range, std::size_t block,
                                                                  StorageId incoming) {
  return recorder_.take(range, block, {incoming, forward_input(block), created_in_forward(block)});
}

std::optional<StorageId> ReplayingRepeater::write_backward(const RepeatedBlocks& blocks, StorageId incoming) {
  stop_recording();
  backward_ = recorded_backward(pass_.last_backward, pass_.last, pass_.gradient_of_last);
  if (!backward_) return std::nullopt;
  const auto output =
      std::find(backward_->created.begin(), backward_->created.end(), incoming) - backward_->created.begin();
  if (!pass_.hands_gradient_on && output == std::ssize(backward_->created)) return std::nullopt;
  std::vector<StorageId> created;
  for (std::size_t i = blocks.end; i-- > blocks.begin;) {
    created.clear();
    write(*backward_, pass_.last, i, incoming, created);
    if (!pass_.hands_gradient_on) incoming = created[static_cast<std::size_t>(output)];
  }
  gradient_of_first_ = incoming;
  return incoming;
}

bool ReplayingRepeater::is_backward_same(const LogRange& backward_of_first) {
  const std::optional<RecordedBlock> again = recorded_backward(backward_of_first, pass_.first, gradient_of_first_);
  return again && is_same(pass_, *again, pass_.first, *backward_, pass_.last);
}

void ReplayingRepeater::write(const RecordedBlock& record, std::size_t from, std::size_t to, StorageId incoming,
                              std::vector<StorageId>& created) {
  using Owner = RecordedBlock::Owner;
  Context& context = pass_.context;
  Log& log = context.log;
  const std::span<const Parameter> parameters = pass_.modules.parameters_of(to);
  const StorageId input = forward_input(to);
  const std::size_t first_created = created.size();
  created.resize(first_created + record.created.size());
  const bool in_backward = pass_.is_in_backward(incoming);
  // By RecordedBlock::Owner.
  const StorageId* const storages[] = {
      created.data() + first_created, &incoming,
      in_backward ? created_.data() + (to - pass_.first) * forward_->created.size() : nullptr, &input};
  std::vector<Storage> gradients(record.frees_gradients ? record.calls.size() : 0), holds;
  const MovedModules moved = pass_.modules.move(from, to);
  // What each call is made under.
  const Scoped<ModuleId> module(context.module, context.module);
  const Scoped<std::uint8_t> stream(context.stream, context.stream);
  const Scoped<bool> recomputing(context.recomputing, context.recomputing),
      grad_mode(context.grad_mode, context.grad_mode);
  const RecordedBlock::RecordedEvent* next_event = record.events.data();
  auto share = record.shares.begin();
  WorkMark end_of_own_work{kNever, kNever};
  const std::size_t calls = record.calls.size();
  for (std::size_t i = 0;; ++i) {
    const RecordedBlock::RecordedEvent* const until =
        record.events.data() + (i < calls ? record.calls[i].event : record.events.size());
    LogPosition now = pass_.now();
    for (; next_event != until; ++next_event, ++now.event) {
      Event event = next_event->event;
      event.module += next_event->moves ? moved.by : 0;
      if (event.kind == EventKind::alloc) {
        event.storage = now.storage++;
        created[first_created + next_event->index] = event.storage;
        StorageRecord& storage = log.storages.emplace_back(log.storages[record.created[next_event->index]]);
        storage.alloc_event = now.event;
        storage.free_event = kNever;
        storage.module += next_event->storage_moves ? moved.by : 0;
        for (; share != record.shares.end() && share->index == next_event->index; ++share)
          log.shares.push_back({event.storage, moved(share->module), share->elements});
      } else {
        if (next_event->owner == Owner::gradient)
          event.storage = drop_silently(gradients[next_event->index]);
        else if (next_event->owner == Owner::parameter)
          event.storage = drop_silently(holds[next_event->index]);
        else
          event.storage = storages[static_cast<std::size_t>(next_event->owner)][next_event->index];
        if (event.kind == EventKind::free) log.storages[event.storage].free_event = now.event;
      }
      log.events.push_back(event);
    }
    if (const WorkRange& work = record.work[i]; !(work.begin == work.end)) {
      // One repetition goes on as long as the listener does no work in between.
      if (log.work.mark() == end_of_own_work && log.work.repeats.back().range.end == work.begin)
        log.work.repeats.back().range.end = work.end;
      else
        log.work.repeat(work);
      end_of_own_work = log.work.mark();
    }
    if (i == calls) break;
    const RecordedBlock::HookCall& call = record.calls[i];
    if (call.changes_holds) update_holds(record, i, parameters, holds);
    Storage gradient;
    if (call.gradient != kNever) gradient = context.resume(created[first_created + call.gradient]);
    if (call.frees_gradient) gradients[i] = gradient;
    make_call(record, call, moved, parameters, std::move(gradient));
  }
  context.change_allocated(record.change);
  if (record.includes_listener && !recorder_.repeat_listener(moved)) pass_.fail();
}

void ReplayingRepeater::update_holds(const RecordedBlock& record, std::size_t call,
                                     std::span<const Parameter> parameters, std::vector<Storage>& holds) {
  for (std::size_t k = 0; k < holds.size(); ++k) {
    if (!holds[k] || record.holds[k].until > call) continue;
    if (holds[k]->references == 1) pass_.fail();  // the parameter had other memory by then
    holds[k].reset();
  }
  while (holds.size() < record.holds.size() && record.holds[holds.size()].from == call)
    holds.emplace_back(parameters[record.holds[holds.size()].parameter].tensor->storage);
}

void ReplayingRepeater::make_call(const RecordedBlock& record, const RecordedBlock::HookCall& call,
                                  const MovedModules& moved, std::span<const Parameter> parameters, Storage gradient) {
  Context& context = pass_.context;
  context.module = moved(call.module);
  context.stream = call.stream;
  context.recomputing = call.recomputing;
  context.grad_mode = call.grad_mode;
  const Tensor& parameter = parameters.empty() ? none_ : parameters[call.parameter].tensor;
  if (call.hook == Hook::gradient) {
    // It has one already where this one was added to it.
    if (static_cast<bool>(parameter->grad) == static_cast<bool>(gradient)) return pass_.fail();
    const TensorMetadata& like = record.gradients[call.metadata];
    if (gradient) parameter->grad = on_storage(gradient, like.sizes, like.strides, like.dtype);
    gradient.reset();
  }
  recorder_.call(call.hook, moved(call.of), parameter);
}

StorageId ReplayingRepeater::drop_silently(Storage& storage) {
  if (storage->references != 1) pass_.fail();
  const StorageId id = std::exchange(storage->id, kNever);
  storage.reset();
  return id;
}

}  // namespace oometer
