#include "nn/repeat/replaying_repeater.h"

#include <algorithm>
#include <utility>

namespace oometer {

std::optional<ReplayingRepeater::Taken> ReplayingRepeater::take_forward(std::size_t block) {
  std::optional<RecordedBlock> record = recorder_.take(pass_.forward_of(block), block, {pass_.inputs[block]});
  if (!record) return std::nullopt;
  created_of_.resize(pass_.inputs.size());
  created_of_[block] = {created_.size(), record->created.size()};
  created_.insert(created_.end(), record->created.begin(), record->created.end());
  return Taken{block, std::move(*record)};
}

std::optional<ReplayingRepeater::Taken> ReplayingRepeater::take_backward(const LogRange& range, std::size_t block,
                                                                         StorageId incoming) {
  std::optional<RecordedBlock> record =
      recorder_.take(range, block, {incoming, pass_.inputs[block], created_in_forward(block)});
  if (!record) return std::nullopt;
  return Taken{block, std::move(*record)};
}

bool ReplayingRepeater::is_same(const Taken& a, const Taken& b) const {
  return oometer::is_same(pass_, a.record, a.block, b.record, b.block);
}

bool ReplayingRepeater::take_forward(std::size_t kind, const BlockKind& of) {
  if (forwards_.size() <= kind) forwards_.resize(kind + 1);
  forwards_[kind] = take_forward(of.first);
  return forwards_[kind].has_value();
}

void ReplayingRepeater::write_forward(std::size_t kind, std::size_t block) {
  const Taken& taken = *forwards_[kind];
  pass_.forward[block] = pass_.now();
  created_of_[block] = {created_.size(), taken.record.created.size()};
  write(taken, block, pass_.inputs[block], created_);
  pass_.forward[block + 1] = pass_.now();
}

bool ReplayingRepeater::is_forward_same(std::size_t kind, const BlockKind& of) {
  const std::optional<Taken> again = take_forward(of.last);
  return again && is_same(*again, *forwards_[kind]);
}

bool ReplayingRepeater::take_backward(std::size_t kind, const BlockKind& of) {
  if (backwards_.size() <= kind) backwards_.resize(kind + 1);
  std::optional<Taken>& backward = backwards_[kind];
  backward = take_backward(of.backward, of.last, of.gradient_of_last);
  if (backward) created_in_backward_ = backward->record.created;
  return backward.has_value();
}

void ReplayingRepeater::write_backward(std::size_t kind, std::size_t block, StorageId incoming) {
  created_in_backward_.clear();
  write(*backwards_[kind], block, incoming, created_in_backward_);
}

bool ReplayingRepeater::is_backward_same(std::size_t kind, const BlockKind& of, const LogRange& range,
                                         StorageId incoming) {
  const std::optional<Taken> again = take_backward(range, of.first, incoming);
  return again && is_same(*again, *backwards_[kind]);
}

void ReplayingRepeater::write(const Taken& taken, std::size_t to, StorageId incoming, std::vector<StorageId>& created) {
  using Owner = RecordedBlock::Owner;
  const RecordedBlock& record = taken.record;
  Context& context = pass_.context;
  Log& log = context.log;
  const std::span<const Parameter> parameters = pass_.modules.parameters_of(to);
  const StorageId input = pass_.inputs[to];
  const std::size_t first_created = created.size();
  created.resize(first_created + record.created.size());
  const bool in_backward = pass_.is_in_backward(incoming);
  // By RecordedBlock::Owner.
  const StorageId* const storages[] = {created.data() + first_created, &incoming,
                                       in_backward ? created_.data() + created_of_[to].begin : nullptr, &input};
  std::vector<Storage> gradients(record.frees_gradients ? record.calls.size() : 0), holds;
  const MovedModules moved = pass_.modules.move(taken.block, to);
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
