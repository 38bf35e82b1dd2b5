#include "train/repetition.h"

namespace oometer {

Repetition::Repetition(Context& context)
    : context_(context),
      first_event_(static_cast<std::uint32_t>(context.log.events.size())),
      last_event_(first_event_),
      first_storage_(static_cast<StorageId>(context.log.storages.size())),
      last_storage_(first_storage_),
      first_phase_(context.log.phases.size()),
      last_phase_(first_phase_),
      shares_(context.log.shares.size()) {}

void Repetition::finish(const std::vector<Tensor*>& gradients) {
  const Log& log = context_.log;
  last_event_ = static_cast<std::uint32_t>(log.events.size());
  last_storage_ = static_cast<StorageId>(log.storages.size());
  last_phase_ = log.phases.size();
  repeatable_ = !log.overflow && log.shares.size() == shares_ && find_left(gradients);
}

bool Repetition::find_left(const std::vector<Tensor*>& gradients) {
  const Log& log = context_.log;
  for (StorageId id = 0; id < first_storage_; ++id)
    if (const std::uint32_t freed = log.storages[id].free_event; freed != kNever && freed >= first_event_) return false;
  std::size_t alive = 0;
  for (StorageId id = first_storage_; id < last_storage_; ++id) alive += log.storages[id].free_event == kNever;
  std::vector<char> accounted(last_storage_ - first_storage_, false);
  for (Tensor* handle : gradients) {
    const Tensor& gradient = *handle;
    if (!gradient) continue;
    const StorageId id = gradient->storage->id;
    // Gradients that are views, or that were there before, are not made anew by what `repeat` knows.
    if (!is_own(id) || gradient->base || gradient->grad_fn) return false;
    if (!accounted[id - first_storage_]) --alive;
    accounted[id - first_storage_] = true;
    left_.push_back({handle, id, gradient.sizes(), gradient.strides(), gradient.dtype()});
  }
  return alive == 0;
}

bool Repetition::repeat() {
  if (!repeatable_) return false;
  for (const Left& left : left_)
    if (*left.handle) return false;
  Log& log = context_.log;
  const auto events = static_cast<std::uint32_t>(log.events.size()) - first_event_;
  const StorageId storages = static_cast<StorageId>(log.storages.size()) - first_storage_;

  const std::uint8_t iteration = static_cast<std::uint8_t>(log.phases[first_phase_].iteration + 1);
  for (std::size_t i = first_phase_; i < last_phase_; ++i) {
    const PhaseMark mark = log.phases[i];
    log.phases.push_back({mark.first_event + events, mark.name, iteration});
  }
  const StorageId own = last_storage_ - first_storage_;
  for (Event& event : append_again(log.events, first_event_, last_event_ - first_event_))
    event.storage += event.storage - first_storage_ < own ? storages : 0;
  std::int64_t left_bytes = 0;
  for (StorageRecord& record : append_again(log.storages, first_storage_, own)) {
    const bool stays = record.free_event >= last_event_;
    left_bytes += stays ? Context::rounded(record.bytes) : 0;
    record.move(events, !stays);
  }
  context_.change_allocated(left_bytes);

  std::vector<Storage> again(own);
  for (const Left& left : left_) {
    Storage& storage = again[left.storage - first_storage_];
    if (!storage) storage = context_.resume(left.storage + storages);
    *left.handle = on_storage(storage, left.sizes, left.strides, left.dtype);
  }
  return true;
}

}  // namespace oometer
