#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "tensor/context.h"
#include "tensor/node.h"
#include "tensor/tensor.h"

namespace oometer {

/// How Axolotl offloads (0.19, core/trainers/mixins/activation_checkpointing.py).
struct AxolotlOffloading {
  bool clones_first = false;  ///< what is no whole storage is copied, before all else
  bool takes_views = false;   ///< of parameters: of a PeftModel nobody says which storages are theirs
  ModuleId head = 0;          ///< its own hooks keep what it saves on the device; 0: no module's
};

/// What autograd saves goes to pinned host memory on a stream of its own, and comes back on it: trl.models.
/// activation_offloading.OffloadActivations (trl 1.16) with its defaults. Small tensors, parameters, and what shares
/// memory with a tensor that has just gone stay on the device.
class OffloadActivations : public SavedTensorHooks {
 public:
  explicit OffloadActivations(Context& context, const AxolotlOffloading& axolotl = {})
      : context_(context), axolotl_(axolotl) {}

  void enter();
  void exit();
  /// The last node that has unpacked something, which is held until another one does, goes.
  void let_go() { curr_autograd_node_.reset(); }

  void pack(Node& node, unsigned slot, const Tensor& tensor) override;
  Tensor unpack(const Node& node, unsigned slot) override;
  /// What was packed is known by its number alone.
  void forget(const Node& /*node*/) override {}

 private:
  using TensorId = std::uint32_t;
  /// _get_unique_tensor_key: its storage, where it begins in it, and its type.
  using StorageKey = std::tuple<StorageId, std::int64_t, DType>;
  struct Tracked {
    Tensor tensor;              ///< one without memory on the device where it was `modified`
    bool modified = false;      ///< it lies in host memory
    std::int64_t elements = 0;  ///< of what was copied
    std::optional<StorageKey> key;
  };

  bool is_in_head() const;
  void track_storage_key(const StorageKey& key, TensorId id);
  void release_storage_key(TensorId id);
  bool is_tracked(const StorageKey& key) const;
  Tensor copy_to_host(const Tensor& activation, bool has_broadcast);
  Tensor copy_to_device(const Tracked& tracked) const;
  /// Of the node that has unpacked it.
  void after_node(TensorId id, bool brought_back_from_cpu, std::uint32_t storage_refcount,
                  const std::vector<TensorId>& prev_node_ids);

  using Stash = std::vector<std::pair<TensorId, Tensor>>;
  static Tensor* find(Stash& stash, TensorId id);
  static void erase(Stash& stash, TensorId id);

  Context& context_;
  const AxolotlOffloading axolotl_;
  bool is_first_forward_call_ = true, is_first_backward_call_ = true;
  std::vector<Tracked> tracker_;  ///< by number, from 1
  std::size_t tracked_ = 0;       ///< of those, how many have not been unpacked
  std::vector<std::pair<StorageKey, TensorId>> storage_to_tensor_id_;
  Stash fwd_stash_, bwd_tensor_stash_;
  const GraphTask* curr_graph_ = nullptr;
  Handle<Node> curr_autograd_node_;
};

/// `with OffloadActivations():`
class OffloadRegion {
 public:
  OffloadRegion(Context& context, OffloadActivations& hooks)
      : hooks_(hooks), scope_(context.saved_tensor_hooks, &hooks), all_executed_(context.repeats, false) {
    hooks_.enter();
  }
  ~OffloadRegion() { hooks_.exit(); }
  OffloadRegion(const OffloadRegion&) = delete;
  OffloadRegion& operator=(const OffloadRegion&) = delete;

 private:
  OffloadActivations& hooks_;
  Scoped<SavedTensorHooks*> scope_;
  Scoped<bool> all_executed_;  ///< what is on the device depends on what equal blocks before have saved
};

}  // namespace oometer
