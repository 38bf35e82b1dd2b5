#pragma once

#include <cstdint>
#include <optional>

#include "tensor/op.h"
#include "tensor/pool.h"
#include "tensor/shape.h"
#include "trace/dtype.h"
#include "trace/log.h"

/// Tensors without numbers. A Tensor has a shape, strides, a type and a storage; the storage's life is the log.
///
/// Handles move as Python names do, because that is what decides when memory goes:
///  - a local variable that Python rebinds is assigned (`x = mul(x, y)`); one that Python deletes is `reset()`;
///  - an argument is a `const Tensor&`: the caller keeps it alive during the call, as CPython's stack does;
///  - C++ keeps every temporary of a full expression until its end, CPython drops each as soon as it is consumed: so a
///    nested call whose inner result is not the last thing alive is written as two statements.
namespace oometer {

class Context;
struct Node;

/// Counted by the TensorImpls that refer to it; the last one's going is the `free` event. id kNever: no memory
/// (zero bytes never reach the allocator; neither does anything made after a recomputation stopped early).
struct StorageImpl {
  Context* context = nullptr;
  std::int64_t bytes = 0;
  std::uint32_t references = 0;
  StorageId id = kNever;
};

inline void retain(StorageImpl* storage) { ++storage->references; }

struct TensorImpl;
void retain(TensorImpl* impl);
void release(TensorImpl* impl);
void release(StorageImpl* storage);
void retain(Node* node);
void release(Node* node);

using Storage = Handle<StorageImpl>;

class Tensor : public Handle<TensorImpl> {
 public:
  using Handle::Handle;

  const Shape& sizes() const;
  const Shape& strides() const;
  /// Size of one dimension, -1 being the last.
  std::int64_t size(int dim) const;
  int ndim() const { return sizes().ndim(); }
  std::int64_t numel() const;
  /// numel × element size: the bytes of its values (its storage may be larger, or shared).
  std::int64_t nbytes() const;
  DType dtype() const;
  Context& context() const;
  /// Whether gradients flow to it: a leaf that asked for one, or the result of a recorded operator.
  bool requires_grad() const;
  bool is_contiguous() const;
  /// Every element has its own place and there are no gaps, whatever the order of the dimensions.
  bool is_non_overlapping_and_dense() const;
};

/// What is asked for most comes first: a cache line holds all but the shape.
struct TensorImpl {
  /// Takes a reference to `storage`.
  TensorImpl(StorageImpl* storage_, const Shape& sizes_, const Shape& strides_, DType dtype_)
      : storage(storage_), dtype(dtype_), sizes(sizes_), strides(strides_) {
    retain(storage);
  }

  StorageImpl* storage;         ///< owned reference
  Node* grad_fn = nullptr;      ///< owned reference; null for leaves
  Node* accumulator = nullptr;  ///< a leaf's AccumulateGrad, not owned (the graph owns it)
  Tensor base;                  ///< of a view: what it is a view of (PyTorch's view metadata holds it)
  Tensor grad;                  ///< a leaf's gradient
  Tensor autocast_copy;         ///< a parameter's low-precision copy in autocast's cache
  std::uint32_t references = 0;
  std::uint16_t output_nr = 0;  ///< which output of grad_fn it is
  DType dtype;
  bool leaf_requires_grad = false;
  bool takes_any_grad = false;      ///< a leaf's: `grad_dtype = None` was set, its gradient stays as it comes
  std::uint32_t index = kNever;     ///< of a parameter: what its strategy calls it (DeepSpeed's ds_id); kNever: nothing
  std::optional<DType> grad_dtype;  ///< a leaf's: what its gradient is cast to; none: its own
  std::int64_t storage_offset = 0;  ///< in elements
  Shape sizes, strides;
};

inline const Shape& Tensor::sizes() const { return get()->sizes; }
inline const Shape& Tensor::strides() const { return get()->strides; }
inline std::int64_t Tensor::size(int dim) const { return get()->sizes[dim]; }
inline std::int64_t Tensor::numel() const { return oometer::numel(get()->sizes); }
inline std::int64_t Tensor::nbytes() const { return checked_product(numel(), element_size(get()->dtype)); }
inline DType Tensor::dtype() const { return get()->dtype; }
inline Context& Tensor::context() const { return *get()->storage->context; }
inline bool Tensor::requires_grad() const { return get()->grad_fn != nullptr || get()->leaf_requires_grad; }

inline void retain(TensorImpl* impl) { ++impl->references; }

// Factories. The operator is the name that the log shows.

/// A new contiguous tensor.
Tensor empty(Context& context, Op op, const Shape& sizes, DType dtype, Role role = Role::tensor);
/// A new tensor of given strides (dense).
Tensor empty_strided(Context& context, Op op, const Shape& sizes, const Shape& strides, DType dtype,
                     Role role = Role::tensor);
/// A new tensor shaped as `like`, in its memory order if it is dense (torch.preserve_format), else contiguous.
Tensor empty_like(Op op, const Tensor& like);
Tensor empty_like(Op op, const Tensor& like, DType dtype);

/// Another tensor on the same storage, with no autograd history: `detach()`, and the raw material of views.
Tensor alias(const Tensor& tensor, const Shape& sizes, const Shape& strides);
Tensor detach(const Tensor& tensor);
/// `tensor.data = source`: the shape is kept; the old storage goes if nobody else holds it.
void set_data(const Tensor& tensor, const Storage& source);
void set_data(const Tensor& tensor, const Tensor& source);
/// `tensor.data = data`: the same tensor, wherever it is held, with other values; what it held before goes.
void replace_data(const Tensor& tensor, const Tensor& data);
/// A tensor on a storage that is there.
Tensor on_storage(const Storage& storage, const Shape& sizes, const Shape& strides, DType dtype);

/// An allocation inside an operator or a library, gone when the object goes.
class Workspace {
 public:
  Workspace(Context& context, Op op, std::int64_t bytes);
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

 private:
  Storage storage_;
};

}  // namespace oometer
