#include "models/masking.h"

#include "cuda/cub.h"
#include "ops/ops.h"

namespace oometer {

namespace {

// find_packed_sequence_indices
void find_packed_sequences(Context& context, std::int64_t batch, std::int64_t length) {
  const Tensor first_dummy = empty(context, Op::sub, {batch, 1}, DType::int64);
  Tensor differences;
  {
    const Tensor joined = empty(context, Op::cat, {batch, length + 1}, DType::int64);  // torch.diff(prepend=...)
    differences = empty(context, Op::sub, {batch, length}, DType::int64);
  }
  Tensor sequence_mask;
  {
    const Tensor breaks = empty(context, Op::ne, {batch, length}, DType::boolean);
    sequence_mask = empty(context, Op::cumsum, {batch, length}, DType::int64);
    const Tensor as_integers = empty(context, Op::cumsum, {batch, length}, DType::int64);
    if (batch == 1)
      const Workspace scan(context, Op::cumsum, cub_scan_bytes(length));  // one row: CUB's device-wide scan
  }
  const Tensor zero = empty(context, Op::eq, {batch}, DType::boolean);
  const Tensor all = empty(context, Op::all, {}, DType::boolean);
}

Tensor arange_with_offset(Context& context, std::int64_t length) {
  const Tensor range = empty(context, Op::arange, {length}, DType::int64);
  return add_scalar(range);
}

}  // namespace

Tensor create_causal_mask(const Tensor& inputs_embeds, const Tensor& position_ids, bool eager) {
  Context& context = inputs_embeds.context();
  const NoGrad no_grad(context);
  const std::int64_t batch = inputs_embeds.size(0), length = inputs_embeds.size(1);
  if (position_ids) find_packed_sequences(context, batch, length);
  if (!eager) return {};
  Tensor allowed;
  {
    const Tensor batch_index = empty(context, Op::arange, {batch}, DType::int64);
    const Tensor head_index = empty(context, Op::arange, {1}, DType::int64);
    const Tensor queries = arange_with_offset(context, length);
    const Tensor keys = arange_with_offset(context, length);
    allowed = empty(context, Op::le, {1, 1, length, length}, DType::boolean);
  }
  const Tensor zero = empty(context, Op::empty, {}, inputs_embeds.dtype());
  const Tensor minimum = empty(context, Op::empty, {}, inputs_embeds.dtype());
  return empty(context, Op::where, {batch, 1, length, length}, inputs_embeds.dtype());
}

}  // namespace oometer
