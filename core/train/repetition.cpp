#include "train/repetition.h"

#include <algorithm>

namespace oometer {

Repetition::Repetition(Context& context, const std::vector<Tensor*>& held)
    : context_(context),
      first_event_(static_cast<std::uint32_t>(context.log.events.size())),
      last_event_(first_event_),
      first_storage_(static_cast<StorageId>(context.log.storages.size())),
      last_storage_(first_storage_),
      first_phase_(context.log.phases.size()),
      last_phase_(first_phase_),
      shares_(context.log.shares.size()),
      allocated_(context.allocated_bytes()) {
  for (Tensor* handle : held) {
    if (!*handle) continue;
    held_.push_back({handle, (*handle)->storage->id});
    allocated_ -= Context::rounded((*handle)->storage->bytes);
  }
}

void Repetition::finish(const std::vector<Tensor*>& handles) {
  const Log& log = context_.log;
  last_event_ = static_cast<std::uint32_t>(log.events.size());
  last_storage_ = static_cast<StorageId>(log.storages.size());
  last_phase_ = log.phases.size();
  repeatable_ = !log.overflow && log.shares.size() == shares_ && find_left(handles);
}

bool Repetition::is_held(StorageId storage) const {
  return std::any_of(held_.begin(), held_.end(), [&](const Held& held) { return held.storage == storage; });
}

bool Repetition::find_left(const std::vector<Tensor*>& handles) {
  const Log& log = context_.log;
  // Which storage comes first: unlike the kinds of events, that can be predicted.
  for (std::uint32_t i = first_event_; i < last_event_; ++i)
    if (const Event& event = log.events[i];
        event.storage < first_storage_ && event.kind == EventKind::free && !is_held(event.storage))
      return false;
  std::vector<std::uint32_t> holder(last_storage_ - first_storage_, kNever);  // which handle came to a storage first
  left_.reserve(handles.size());
  for (Tensor* handle : handles) {
    const Tensor& tensor = *handle;
    if (!tensor) continue;
    const StorageId id = tensor->storage->id;
    // Tensors that are views, or that were there before, are not made anew by what `repeat` knows.
    if (!is_own(id) || tensor->base || tensor->grad_fn) return false;
    std::uint32_t& first = holder[id - first_storage_];
    if (first == kNever) {
      first = static_cast<std::uint32_t>(left_.size());
      left_bytes_ += Context::rounded(tensor->storage->bytes);
    }
    left_.push_back({handle, id, first, tensor.sizes(), tensor.strides(), tensor.dtype()});
  }
  return allocated_ + left_bytes_ == context_.allocated_bytes();  // nothing else is alive, and nothing that was held
}

bool Repetition::handles_are_ready() const {
  if (!std::all_of(held_.begin(), held_.end(), [](const Held& held) { return static_cast<bool>(*held.handle); }))
    return false;
  return std::all_of(left_.begin(), left_.end(), [&](const Left& left) {
    const auto is_its = [&](const Held& held) { return held.handle == left.handle; };
    return !*left.handle || std::any_of(held_.begin(), held_.end(), is_its);
  });
}

bool Repetition::repeat(std::int32_t iteration) {
  if (!repeatable_ || !handles_are_ready()) return false;
  Log& log = context_.log;
  const auto events = static_cast<std::uint32_t>(log.events.size()) - first_event_;
  const StorageId storages = static_cast<StorageId>(log.storages.size()) - first_storage_;

  if (iteration == 0) iteration = log.phases[first_phase_].iteration + 1;
  for (std::size_t i = first_phase_; i < last_phase_; ++i) {
    const PhaseMark mark = log.phases[i];
    log.phases.push_back({mark.first_event + events, mark.name, iteration, log.work.mark()});
    log.work.repeat({mark.work, log.phases[i + 1].work});
  }
  // In pieces that stay in the processor's cache until they are written for good.
  constexpr std::uint32_t kPiece = 512;
  const StorageId own = last_storage_ - first_storage_;
  for (std::uint32_t i = first_event_; i < last_event_; i += kPiece)
    for (Event& event : append_again(log.events, i, std::min(kPiece, last_event_ - i)))
      event.storage += event.storage - first_storage_ < own ? storages : 0;
  for (StorageId i = first_storage_; i < last_storage_; i += kPiece)
    for (StorageRecord& record : append_again(log.storages, i, std::min(kPiece, last_storage_ - i)))
      record.move(events, record.free_event < last_event_);
  context_.change_allocated(left_bytes_);

  for (const Held& held : held_) {  // what it holds now goes where that went which it held then
    StorageImpl& now = *(*held.handle)->storage;
    const std::uint32_t freed = log.storages[held.storage].free_event + events;
    log.storages[now.id].free_event = freed;
    log.events[freed].storage = now.id;
    context_.change_allocated(-Context::rounded(now.bytes));
    now.id = kNever;
    held.handle->reset();
  }
  for (const Left& left : left_) {
    const Tensor& holder = *left_[left.first].handle;
    const Storage storage = holder ? Storage(holder->storage) : context_.resume(left.storage + storages);
    *left.handle = on_storage(storage, left.sizes, left.strides, left.dtype);
  }
  return true;
}

}  // namespace oometer
