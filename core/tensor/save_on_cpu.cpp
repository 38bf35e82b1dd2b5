#include "tensor/save_on_cpu.h"

#include <algorithm>

#include "tensor/context.h"
#include "tensor/host_memory.h"

namespace oometer {

Tensor pack_to_cpu(const Tensor& tensor) {
  Context& context = tensor.context();
  const bool pinned = context.saves_on == SavesOn::pinned;
  // Copy.cu, copy_requires_temporaries: pinned memory is contiguous, tensor.cpu() keeps the memory order.
  if (pinned ? !tensor.is_contiguous() : !tensor.is_non_overlapping_and_dense())
    const Workspace staging(context, Op::clone, tensor.nbytes());
  context.saved_on_host += pinned ? pinned_size(tensor.nbytes()) : tensor.nbytes();
  context.most_saved_on_host = std::max(context.most_saved_on_host, context.saved_on_host);
  const Scoped<bool> no_device_memory(context.stopped, true);
  return pinned ? empty(context, Op::to_copy, tensor.sizes(), tensor.dtype()) : empty_like(Op::to_copy, tensor);
}

Tensor unpack_from_cpu(const Tensor& packed) { return empty_like(Op::to_copy, packed); }

}  // namespace oometer
