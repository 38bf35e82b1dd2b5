#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>
#include <vector>

namespace oometer {

/// A run makes and drops tens of thousands of small objects: they live in chunks, and a dropped one's place is the next
/// one's. Everything goes at once with the pool.
template <class T>
class Pool {
 public:
  template <class... Args>
  T* make(Args&&... args) {
    Slot* slot = free_;
    if (slot != nullptr)
      free_ = slot->next;
    else
      slot = fresh();
    // Without arguments, not `T()`: that would clear the whole object before its members are initialised.
    if constexpr (sizeof...(Args) == 0)
      return new (slot->bytes) T;
    else
      return new (slot->bytes) T(std::forward<Args>(args)...);
  }

  void drop(T* object) {
    object->~T();
    Slot* slot = reinterpret_cast<Slot*>(object);
    slot->next = free_;
    free_ = slot;
  }

 private:
  union Slot {
    Slot* next;
    alignas(T) std::byte bytes[sizeof(T)];
  };

  /// A place that was never used. Chunks are neither cleared nor threaded beforehand: memory that is not needed stays
  /// untouched.
  Slot* fresh() {
    constexpr std::size_t kChunk = 32768 / sizeof(Slot);
    if (next_ == end_) {
      chunks_.push_back(std::unique_ptr<Slot[]>(new Slot[kChunk]));
      next_ = chunks_.back().get();
      end_ = next_ + kChunk;
    }
    return next_++;
  }

  std::vector<std::unique_ptr<Slot[]>> chunks_;
  Slot* free_ = nullptr;
  Slot *next_ = nullptr, *end_ = nullptr;  ///< what is left of the last chunk
};

/// The one owning handle: counts references in the object itself (plain integers: a simulation has one thread).
/// `retain(T*)` and `release(T*)` are found beside T.
template <class T>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T* object) : object_(object) {
    if (object_) retain(object_);
  }
  Handle(const Handle& other) : Handle(other.object_) {}
  Handle(Handle&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Handle& operator=(const Handle& other) {  // NOLINT(bugprone-unhandled-self-assignment): copied, then swapped
    Handle copy(other);
    std::swap(object_, copy.object_);
    return *this;
  }
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      T* old = std::exchange(object_, std::exchange(other.object_, nullptr));
      if (old) release(old);
    }
    return *this;
  }
  ~Handle() {
    if (object_) release(object_);
  }

  /// Drops the reference now, as Python's `del` does.
  void reset() {
    if (T* old = std::exchange(object_, nullptr)) release(old);
  }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  T* object_ = nullptr;
};

}  // namespace oometer
