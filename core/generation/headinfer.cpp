#include "generation/headinfer.h"

#include "ops/ops.h"

namespace oometer {

Tensor HeadCache::states(const Head& head, Op op) {
  return empty(context_, op, head.sizes, head.dtype, Role::kv_cache);
}

/// evict_previous_layer: an entry is a layer there.
void HeadCache::evict_before(std::size_t entry) {
  const std::size_t count = heads_.size();
  if (count > 2) heads_[(entry + count - 1) % count].device = {};
}

/// __getitem__: `entry` is there, the one before goes, the next one comes (prefetch_layer).
void HeadCache::take(std::size_t entry) {
  evict_before(entry);
  constexpr std::uint8_t kPrefetchStream = 1;
  Head& next = heads_[(entry + 1) % heads_.size()];
  if (next.device.keys) return;
  const Scoped<std::uint8_t> stream(context_.stream, kPrefetchStream);
  const ModuleScope scope(context_, next.module);
  next.device.keys = states(next, Op::to_copy);
  next.device.values = states(next, Op::to_copy);
}

/// torch.cat of both; `key_tensor` and `value_tensor` are update's own names.
void HeadCache::append(Head& head, std::int64_t tokens) {
  States old = head.device;
  head.sizes[2] += tokens;
  head.device.keys = states(head, Op::cat);
  head.device.values = states(head, Op::cat);
  old.keys.reset();
  old.values.reset();
}

KvCache::States HeadCache::update(std::size_t entry, const Tensor& keys, const Tensor& values) {
  if (entry == heads_.size()) {  // the prompt's states are kept as they are
    heads_.push_back({{keys, values}, keys.sizes(), keys.dtype(), context_.module});
    for (const Tensor* states : {&keys, &values}) context_.set_role(*states, Role::kv_cache, context_.module);
    evict_before(entry);
  } else {
    take(entry);
    append(heads_[entry], keys.size(2));
  }
  return heads_[entry].device;
}

void HeadCache::grow(std::int64_t tokens) {
  for (std::size_t entry = 0; entry < heads_.size(); ++entry) {
    const ModuleScope scope(context_, heads_[entry].module);
    take(entry);
    append(heads_[entry], tokens);
  }
}

std::int64_t HeadCache::host_bytes() const {
  std::int64_t bytes = 0;
  for (const Head& head : heads_)
    if (!head.device.keys) bytes += 2 * numel(head.sizes) * element_size(head.dtype);
  return bytes;
}

}  // namespace oometer
