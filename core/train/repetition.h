#pragma once

#include <cstdint>
#include <vector>

#include "tensor/context.h"

namespace oometer {

/// A stretch of the run that happens again: where the first time left nothing behind but gradients, which the optimizer
/// has let go of since, and released nothing older than itself, the second time finds what the first one found. It is
/// then the same events about new storages, and is written as such instead of being executed.
class Repetition {
 public:
  /// Before the stretch is executed.
  explicit Repetition(Context& context);

  /// After it. `gradients` are the handles that may hold what it left.
  void finish(const std::vector<Tensor*>& gradients);

  /// Writes it once more, and fills the handles with the new gradients. False, and nothing done, if it would not be the
  /// same again: it created something that lives on (a library's workspace, a scaler) or freed it.
  bool repeat();

 private:
  /// What a handle held, without holding it.
  struct Left {
    Tensor* handle;
    StorageId storage;
    std::uint32_t first;  ///< of those that hold the same storage
    Shape sizes, strides;
    DType dtype;
  };

  bool is_own(StorageId storage) const { return storage >= first_storage_ && storage < last_storage_; }
  bool find_left(const std::vector<Tensor*>& gradients);

  Context& context_;
  std::uint32_t first_event_, last_event_;
  StorageId first_storage_, last_storage_;
  std::size_t first_phase_, last_phase_;
  std::size_t shares_;
  std::int64_t allocated_;  ///< before it, in bytes
  std::int64_t left_bytes_ = 0;
  bool repeatable_ = false;
  std::vector<Left> left_;
};

}  // namespace oometer
