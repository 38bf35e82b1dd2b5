#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "nn/module.h"
#include "ops/ops.h"
#include "tensor/context.h"

/// One simulated process for tests of tensors, operators and modules: an A100's, with PyTorch 2.15.
namespace oometer {

inline constexpr Device kA100{8, 0, 108};
inline constexpr Device kH100{9, 0, 132};
inline constexpr DType kFp32 = DType::float32, kBf16 = DType::bfloat16;

using Bytes = std::vector<std::int64_t>;

/// Of real PyTorch on the stand-in device that the recorded numbers come from: no cuDNN.
inline Behaviours recorded_behaviours(bool dispatch_mode = false) {
  Behaviours behaviours = resolve_behaviours({});
  behaviours.cudnn = false;
  behaviours.dispatch_mode = dispatch_mode;
  return behaviours;
}

class Process {
 public:
  explicit Process(const Behaviours& behaviours = recorded_behaviours(), const Device& device = kA100)
      : context(behaviours, device) {
    root = context.add_module(0, "", -1, "Test", Modality::none);
  }

  Context context;
  ModuleId root = 0;
  std::vector<Parameter> parameters;
  std::vector<Buffer> buffers;

  Builder builder(DType dtype = DType::bfloat16) {
    return {&context, &parameters, &buffers, root, Modality::none, dtype};
  }

  Tensor parameter(const Shape& sizes, DType dtype = DType::bfloat16) {
    return builder(dtype).parameter("weight", sizes);
  }

  /// A leaf without a gradient, or, `wants_gradient`, one with.
  Tensor input(const Shape& sizes, DType dtype = DType::bfloat16, bool wants_gradient = false) {
    Tensor tensor = empty(context, Op::input, sizes, dtype, Role::input);
    tensor->leaf_requires_grad = wants_gradient;
    return tensor;
  }

  const Log& log() const { return context.log; }

  /// The log from here on.
  void mark() { mark_ = context.log.events.size(); }

  /// "+n" for an allocation of n bytes, "-n" for a free, since the mark.
  Bytes events() const {
    std::vector<std::int64_t> result;
    for (std::size_t i = mark_; i < context.log.events.size(); ++i) {
      const Event& event = context.log.events[i];
      const std::int64_t bytes = context.log.storages[event.storage].bytes;
      result.push_back(event.kind == EventKind::alloc ? bytes : -bytes);
    }
    return result;
  }

  /// Only the allocations since the mark.
  Bytes allocations() const {
    std::vector<std::int64_t> result = events();
    std::erase_if(result, [](std::int64_t bytes) { return bytes < 0; });
    return result;
  }

  /// Bytes of all storages of a role that are alive now.
  std::int64_t alive(Role role) const {
    std::int64_t bytes = 0;
    for (const StorageRecord& storage : context.log.storages)
      if (storage.role == role && storage.free_event == kNever) bytes += storage.bytes;
    return bytes;
  }

  /// Sizes of what is alive, of that role, and was handed to autograd; sorted.
  std::vector<std::int64_t> saved(Role role = Role::tensor) const {
    std::vector<std::int64_t> result;
    for (const StorageRecord& storage : context.log.storages)
      if (storage.saved && storage.role == role && storage.free_event == kNever) result.push_back(storage.bytes);
    std::sort(result.begin(), result.end());
    return result;
  }

 private:
  std::size_t mark_ = 0;
};

/// The cuBLAS workspace of a GEMM on an A100, and cuBLASLt's.
inline constexpr std::int64_t kWorkspace = 8'519'680, kLtWorkspace = 1'048'576;

}  // namespace oometer
