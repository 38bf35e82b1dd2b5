#include "nn/repeat/range_copier.h"

namespace oometer {

std::optional<RangeCopier> RangeCopier::of(Context& context, const LogRange& range, const LogRange& forward,
                                           const Storages& from, const MovedModules& itself) {
  const Log& log = context.log;
  RangeCopier copier(context, range, from);
  copier.events_.reserve(range.events());
  copier.storages_.reserve(range.storages());
  for (std::uint32_t i = 0; i < range.events(); ++i) {
    const Event& event = log.events[range.begin.event + i];
    if (event.kind == EventKind::empty_cache) return std::nullopt;
    Owner owner;
    if (range.created(event.storage))
      owner = Owner::created;
    else if (forward.created(event.storage))
      owner = Owner::created_in_forward;
    else if (event.storage == from.incoming)
      owner = Owner::incoming;
    else if (event.storage == from.incoming_in_forward)
      owner = Owner::incoming_in_forward;
    else
      return std::nullopt;
    copier.events_.push_back({owner, itself.moves(event.module)});
    const StorageRecord& record = log.storages[event.storage];
    if (event.kind == EventKind::alloc) {
      copier.storages_.push_back({itself.moves(record.module), record.free_event < range.end.event});
      copier.change_ += Context::rounded(record.bytes);
    } else if (event.kind == EventKind::free) {
      if (owner != Owner::created) copier.frees_.push_back(i);
      copier.change_ -= Context::rounded(record.bytes);
    }
  }
  return copier;
}

StorageId RangeCopier::origin(Owner owner) const {
  switch (owner) {
    case Owner::created:
      return range_.begin.storage;
    case Owner::created_in_forward:
      return from_.begin_of_forward;
    case Owner::incoming:
      return from_.incoming;
    case Owner::incoming_in_forward:
      return from_.incoming_in_forward;
  }
  return kNever;
}

LogRange RangeCopier::write(const Storages& to, ModuleId by) {
  Log& log = context_->log;
  const LogPosition now = end_of(log);
  // By owner.
  const StorageId steps[] = {now.storage - range_.begin.storage, to.begin_of_forward - from_.begin_of_forward,
                             to.incoming - from_.incoming, to.incoming_in_forward - from_.incoming_in_forward};
  const ModuleId module_steps[] = {0, by};
  const EventStep* step = events_.data();
  for (Event& event : append_again(log.events, range_.begin.event, range_.events())) {
    event.storage += steps[static_cast<std::size_t>(step->owner)];
    event.module += module_steps[step->moves];
    ++step;
  }
  const StorageStep* storage_step = storages_.data();
  for (StorageRecord& record : append_again(log.storages, range_.begin.storage, range_.storages())) {
    record.module += module_steps[storage_step->moves];
    record.move(now.event - range_.begin.event, storage_step->is_freed);
    ++storage_step;
  }
  for (const std::uint32_t i : frees_) {
    const std::uint32_t at = now.event + i;
    log.storages[log.events[at].storage].free_event = at;
  }
  log.work.repeat(range_.work());
  context_->change_allocated(change_);
  return {now, end_of(log)};
}

bool RangeCopier::is_about_same(const RangeCopier& other, const Log& log) const {
  for (std::uint32_t i = 0; i < range_.events(); ++i) {
    const Owner owner = events_[i].owner;
    if (owner != other.events_[i].owner) return false;
    const StorageId x = log.events[range_.begin.event + i].storage,
                    y = log.events[other.range_.begin.event + i].storage;
    if (x - origin(owner) != y - other.origin(owner)) return false;
  }
  return true;
}

}  // namespace oometer
