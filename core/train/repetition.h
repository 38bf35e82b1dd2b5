#pragma once

#include <cstdint>
#include <vector>

#include "tensor/context.h"

namespace oometer {

/// A stretch of the run that happens again. The first time it left nothing behind but what some handles hold
/// (gradients, the loop's batch), and released nothing older than itself but what such handles held: then the second
/// time is the same events about new storages, and is written as such instead of being executed.
class Repetition {
 public:
  /// Before the stretch is executed. `held`: handles that it may take something from.
  explicit Repetition(Context& context, const std::vector<Tensor*>& held = {});

  /// After it. `handles` may hold what it left.
  void finish(const std::vector<Tensor*>& handles);

  /// Whether `repeat` can write it, where the handles hold what they held, or its like.
  bool is_repeatable() const { return repeatable_; }

  /// Writes it once more, as `iteration` (0: the one after that which was executed), and fills the handles with what it
  /// leaves. False, and nothing done, if it would not be the same again: it created something that lives on (a
  /// library's workspace, a scaler) or freed it.
  bool repeat(std::int32_t iteration = 0);

 private:
  /// What a handle held, without holding it.
  struct Left {
    Tensor* handle;
    StorageId storage;
    std::uint32_t first;  ///< of those that hold the same storage
    Shape sizes, strides;
    DType dtype;
  };
  struct Held {
    Tensor* handle;
    StorageId storage;
  };

  bool is_own(StorageId storage) const { return storage >= first_storage_ && storage < last_storage_; }
  bool is_held(StorageId storage) const;
  bool find_left(const std::vector<Tensor*>& handles);
  bool handles_are_ready() const;

  Context& context_;
  std::uint32_t first_event_, last_event_;
  StorageId first_storage_, last_storage_;
  std::size_t first_phase_, last_phase_;
  std::size_t shares_;
  std::int64_t allocated_;  ///< before it, without what `held_` held, in bytes
  std::int64_t left_bytes_ = 0;
  bool repeatable_ = false;
  std::vector<Held> held_;  ///< none of which stays
  std::vector<Left> left_;
};

}  // namespace oometer
