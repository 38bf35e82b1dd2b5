#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "tensor/context.h"
#include "tensor/tensor.h"

/// What operators tell the log of their kernels: what each computes and moves (trace/work.h). Most need not: a tensor
/// that is allocated is written, and as many bytes are read for it unless `reads` says how many (a factory's: none). So
/// this is for what allocates nothing, and for products. A kernel that a stopped recomputation does not run is not
/// told.
namespace oometer {

/// What is asked about each allocation and each recorded operator.
struct KernelHabits {
  WorkKind kind = WorkKind::none;
  bool is_told_by_allocation = false, reads_inputs = false, is_factory = false;
};
extern const KernelHabits* const kKernelHabits;  ///< by Op

inline const KernelHabits& habits(Op op) { return kKernelHabits[static_cast<std::size_t>(op)]; }
inline WorkKind work_kind(Op op) { return habits(op).kind; }

/// The bytes of a tensor's values that lie in memory: an expanded tensor has fewer than `nbytes`. Of a null one, none.
inline std::int64_t touched(const Tensor& tensor) {
  return tensor ? std::min(tensor.nbytes(), tensor->storage->bytes) : 0;
}
inline std::int64_t touched(std::initializer_list<const Tensor*> tensors) {
  std::int64_t bytes = 0;
  for (const Tensor* tensor : tensors) bytes += touched(*tensor);
  return bytes;
}

/// A tensor has just been allocated by an operator, to be written.
inline void writes(Context& context, Op op, std::int64_t bytes, DType dtype) {
  const KernelHabits& its = habits(op);
  if (!its.is_told_by_allocation || context.stopped || bytes == 0) return;
  context.work({.op = static_cast<OpId>(op),
                .kind = its.kind,
                .dtype = dtype,
                .read = its.is_factory ? 0 : bytes,
                .written = bytes});
}
/// The bytes that a recorded operator reads of its inputs. kNotTold of a product, which tells its own kernel, and of a
/// gather, which reads as much as it writes.
inline constexpr std::int64_t kNotTold = -1;
inline std::int64_t read_of_inputs(Op op, std::initializer_list<const Tensor*> inputs) {
  return habits(op).reads_inputs ? touched(inputs) : kNotTold;
}
std::int64_t read_of_inputs(Op op, const std::vector<Tensor>& inputs);
/// For what `op` has allocated last, `result` or beside it, it reads so many bytes.
void reads(Op op, const Tensor& result, std::int64_t bytes);
void reads(Op op, const Tensor& result, std::initializer_list<const Tensor*> tensors);

/// One in place: what it reads, and what it writes.
void kernel(Op op, std::initializer_list<const Tensor*> read, const Tensor& written);

/// A collective of so many ranks, none of one alone. `bytes`: its message, the whole tensor that is reduced, gathered
/// or broadcast; what goes over a rank's links is 2 (n - 1) / n of it in a ring's all_reduce, (n - 1) / n in the
/// others.
void collective(Context& context, Op op, std::int64_t bytes, DType dtype, std::int64_t ranks);

/// Products of [m, k] x [k, n], `batch` of them, which read and write so many bytes.
struct Gemm {
  std::int64_t batch, m, n, k;
  DType dtype;
  std::int64_t read, written;
  bool is_counted = true;  ///< torch.utils.flop_counter sees it: it does not see what a library's own kernel multiplies
  OddRows odd_rows = OddRows::none;
};
void gemm_kernel(Context& context, Op op, const Gemm& gemm);
/// `result` = a x b, matrices or batches of them, and `bias` (or null) added.
void gemm_kernel(Op op, const Tensor& a, const Tensor& b, const Tensor& result, const Tensor& bias = {});

}  // namespace oometer
