#include "autograd/offload_activations.h"

#include <algorithm>
#include <utility>

#include "tensor/host_memory.h"

namespace oometer {

namespace {

constexpr std::int64_t kMinOffloadSize = 1024;    // min_offload_size, bytes
constexpr std::uint32_t kMaxForwardStash = 5;     // max_fwd_stash_size
constexpr std::uint8_t kCommunicationStream = 1;  // s1

bool has_broadcast_dimension(const Tensor& tensor) {
  for (int i = 0; i < tensor.ndim(); ++i)
    if (tensor.strides()[i] == 0) return true;
  return false;
}

}  // namespace

Tensor* OffloadActivations::find(Stash& stash, TensorId id) {
  for (auto& [of, tensor] : stash)
    if (of == id) return &tensor;
  return nullptr;
}

void OffloadActivations::erase(Stash& stash, TensorId id) {
  const auto at = std::find_if(stash.begin(), stash.end(), [id](const auto& entry) { return entry.first == id; });
  if (at != stash.end()) stash.erase(at);
}

void OffloadActivations::track_storage_key(const StorageKey& key, TensorId id) {
  tracker_[id].key = key;
  for (auto& [of, holder] : storage_to_tensor_id_)
    if (of == key) {
      holder = id;
      return;
    }
  storage_to_tensor_id_.emplace_back(key, id);
}

void OffloadActivations::release_storage_key(TensorId id) {
  if (!tracker_[id].key) return;
  const StorageKey key = *tracker_[id].key;
  tracker_[id].key.reset();
  std::erase_if(storage_to_tensor_id_, [&](const auto& entry) { return entry.first == key && entry.second == id; });
}

bool OffloadActivations::is_tracked(const StorageKey& key) const {
  return std::any_of(storage_to_tensor_id_.begin(), storage_to_tensor_id_.end(),
                     [&](const auto& entry) { return entry.first == key; });
}

void OffloadActivations::enter() {
  tracker_.assign(1, {});
  tracked_ = 0;
  storage_to_tensor_id_.clear();
  is_first_forward_call_ = is_first_backward_call_ = true;
  fwd_stash_.clear();
  bwd_tensor_stash_.clear();
  context_.saved_on_host = 0;
  context_.empty_cache();  // where bitsandbytes is installed: peft imports it
}

void OffloadActivations::exit() {
  bwd_tensor_stash_.clear();
  fwd_stash_.clear();
}

Tensor OffloadActivations::copy_to_host(const Tensor& activation, bool has_broadcast) {
  const std::int64_t bytes = has_broadcast ? activation->storage->bytes : activation.nbytes();
  context_.saved_on_host += pinned_size(bytes);
  context_.most_saved_on_host = std::max(context_.most_saved_on_host, context_.saved_on_host);
  const Scoped<bool> no_device_memory(context_.stopped, true);
  return empty_strided(context_, Op::to_copy, activation.sizes(), activation.strides(), activation.dtype());
}

bool OffloadActivations::is_in_head() const {
  if (axolotl_.head == 0) return false;
  return context_.module >= axolotl_.head && context_.module < context_.log.end_of(axolotl_.head);
}

// pack_tensor
void OffloadActivations::pack(Node& node, unsigned slot, const Tensor& tensor) {
  if (is_in_head()) {  // NoOpManager
    node.saved[slot] = tensor;
    return;
  }
  if (is_first_forward_call_) {
    is_first_forward_call_ = false;
    is_first_backward_call_ = true;
    storage_to_tensor_id_.clear();
  }
  const auto id = static_cast<TensorId>(tracker_.size());
  node.hooks = Handle<SavedTensorHooks>(this);
  node.promised = static_cast<std::uint16_t>(node.promised | 1U << slot);
  node.packed[slot] = id;
  Tensor activation = detach(tensor);
  // _patch_trl_offload_compute_stream_clone
  if (axolotl_.clones_first && (!activation.is_contiguous() || activation->storage_offset != 0))
    activation = empty(context_, Op::clone, activation.sizes(), activation.dtype());
  Tracked& tracked = tracker_.emplace_back();
  ++tracked_;

  const StorageKey key{activation->storage->id, activation->storage_offset, activation.dtype()};
  const StorageRecord* const record = context_.record(activation);
  const bool is_shared = is_tracked(key);
  const bool is_parameter = record && record->role == Role::parameter && (!axolotl_.takes_views || !tensor->base);
  if (is_shared || activation.nbytes() < kMinOffloadSize || is_parameter) {
    tracked.tensor = std::move(activation);
    if (is_shared) track_storage_key(key, id);
    return;
  }
  const bool has_broadcast = has_broadcast_dimension(activation);
  if (!has_broadcast && (!activation.is_contiguous() || activation->storage_offset != 0))
    activation = empty(context_, Op::clone, activation.sizes(), activation.dtype());
  while (!fwd_stash_.empty() && fwd_stash_.front().first + kMaxForwardStash <= id) {
    const TensorId gone = fwd_stash_.front().first;
    fwd_stash_.erase(fwd_stash_.begin());
    release_storage_key(gone);
  }
  tracked.tensor = copy_to_host(activation, has_broadcast);
  tracked.modified = true;
  tracked.elements =
      (has_broadcast ? activation->storage->bytes : activation.nbytes()) / element_size(activation.dtype());
  fwd_stash_.emplace_back(id, std::move(activation));
  track_storage_key(key, id);
}

Tensor OffloadActivations::copy_to_device(const Tracked& tracked) const {
  const Scoped<std::uint8_t> stream(context_.stream, kCommunicationStream);
  const Tensor flat = empty(context_, Op::to_copy, {tracked.elements}, tracked.tensor.dtype());
  return alias(flat, tracked.tensor.sizes(), tracked.tensor.strides());  // as_strided, of what holds no base
}

// unpack_tensor_with_streams
Tensor OffloadActivations::unpack(const Node& node, unsigned slot) {
  const TensorId id = node.packed[slot];
  GraphTask& graph_task = *context_.graph_task;
  if (is_first_backward_call_) {
    curr_graph_ = &graph_task;
    graph_task.final_callbacks.emplace_back([this] { bwd_tensor_stash_.clear(); });
    is_first_backward_call_ = false;
  }
  Tracked& tracked = tracker_[id];
  Tensor tensor = tracked.tensor;
  if (tracked.modified) {
    std::vector<TensorId> prev_node_ids;
    if (&graph_task == curr_graph_ && curr_autograd_node_.get() != graph_task.node) {
      curr_autograd_node_ = Handle<Node>(graph_task.node);
      for (const auto& [of, unpacked] : bwd_tensor_stash_) prev_node_ids.push_back(of);
    }
    bool brought_back_from_cpu = true;
    std::uint32_t storage_refcount = 0;
    if (const Tensor* const stashed = find(fwd_stash_, id)) {
      tensor = *stashed;
      brought_back_from_cpu = false;
    } else {
      tensor = copy_to_device(tracked);
      bwd_tensor_stash_.emplace_back(id, tensor);
      storage_refcount = tensor->storage->references;
    }
    auto& hooks = graph_task.node->post_hooks;
    if (!hooks) hooks = std::make_unique<std::vector<std::function<void()>>>();
    hooks->emplace_back([this, id, brought_back_from_cpu, storage_refcount, prev = std::move(prev_node_ids)] {
      after_node(id, brought_back_from_cpu, storage_refcount, prev);
    });
  }
  tracked.tensor.reset();
  release_storage_key(id);
  if (--tracked_ == 0) is_first_forward_call_ = true;
  return tensor;
}

void OffloadActivations::after_node(TensorId id, bool brought_back_from_cpu, std::uint32_t storage_refcount,
                                    const std::vector<TensorId>& prev_node_ids) {
  if (const Tensor* const unpacked = find(bwd_tensor_stash_, id); brought_back_from_cpu && unpacked) {
    // A view of it is still there: it stays until the stream that computes is done with it.
    if ((*unpacked)->storage->references > storage_refcount) {
      context_.record_stream(*unpacked, context_.stream);
      erase(bwd_tensor_stash_, id);
    }
  }
  while (!fwd_stash_.empty()) {
    const TensorId gone = fwd_stash_.front().first;
    fwd_stash_.erase(fwd_stash_.begin());
    release_storage_key(gone);
  }
  for (const TensorId gone : prev_node_ids) erase(bwd_tensor_stash_, gone);
}

}  // namespace oometer
