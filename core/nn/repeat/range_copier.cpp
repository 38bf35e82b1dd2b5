#include "nn/repeat/range_copier.h"

namespace oometer {

RangeCopier::RangeCopier(Context& context, const LogRange& range, const Steps& steps)
    : context_(context), latest_(range), was_at_end_(range.end.event == context.log.events.size()) {
  const Log& log = context.log;
  const auto module_step = [&](ModuleId module) { return steps.moved(module) - module; };
  events_.reserve(range.events());
  storages_.reserve(range.storages());
  for (std::uint32_t i = 0; i < range.events(); ++i) {
    const Event& event = log.events[range.begin.event + i];
    const StorageRecord& record = log.storages[event.storage];
    events_.push_back(
        {event.storage < steps.begin_of_backward ? steps.forward : steps.backward, module_step(event.module)});
    if (event.kind == EventKind::alloc) {
      storages_.push_back({module_step(record.module), record.free_event < range.end.event});
      change_ += Context::rounded(record.bytes);
    } else if (event.kind == EventKind::free) {
      if (!range.created(event.storage)) frees_.push_back(i);
      change_ -= Context::rounded(record.bytes);
    }
  }
}

LogRange RangeCopier::write() {
  Log& log = context_.log;
  const std::uint32_t events = latest_.events();
  const StorageId storages = latest_.storages();
  const LogPosition now = end_of(log);
  const EventStep* step = events_.data();
  for (Event& event : append_again(log.events, latest_.begin.event, events)) {
    event.storage += step->storage;
    event.module += step->module;
    ++step;
  }
  const StorageStep* storage_step = storages_.data();
  for (StorageRecord& record : append_again(log.storages, latest_.begin.storage, storages)) {
    record.module += storage_step->module;
    record.move(now.event - latest_.begin.event, storage_step->is_freed);
    ++storage_step;
  }
  for (const std::uint32_t i : frees_) {
    const std::uint32_t at = now.event + i;
    log.storages[log.events[at].storage].free_event = at;
  }
  log.work.repeat(latest_.work());
  latest_ = {now, end_of(log)};
  context_.change_allocated(change_);
  return latest_;
}

}  // namespace oometer
