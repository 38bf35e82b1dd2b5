#include "models/masking.h"

#include "nn/kv_cache.h"
#include "ops/cub.h"
#include "ops/ops.h"

namespace oometer {

namespace {

// find_packed_sequence_indices; 5.x looks whether there is more than one (`detects`), 4.57 never does.
Tensor find_packed_sequences(Context& context, std::int64_t batch, std::int64_t length, bool detects) {
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
  if (!detects) return sequence_mask;
  const Tensor zero = empty(context, Op::eq, {batch}, DType::boolean);
  const Tensor all = empty(context, Op::all, {}, DType::boolean);
  return {};
}

Tensor arange_with_offset(Context& context, std::int64_t length) {
  const Tensor range = empty(context, Op::arange, {length}, DType::int64);
  return add_scalar(range);
}

// AttentionMaskConverter.to_causal_4d, to_4d (modeling_attn_mask_utils.py, 4.37.2): made in torch's default type.
Tensor converter_mask(const Tensor& like, bool with_padding_mask) {
  Context& context = like.context();
  const std::int64_t batch = like.size(0), length = like.size(1);
  const Shape sizes{batch, 1, length, length};
  Tensor mask = empty(context, Op::fill, {length, length}, DType::float32);
  {  // _make_causal_mask
    const Tensor condition = empty(context, Op::arange, {length}, DType::int64);
    {
      const Tensor next = add_scalar(condition);
      const Tensor below = empty(context, Op::lt, {length, length}, DType::boolean);
    }
    mask = to(mask, like.dtype());
    mask = expand(unsqueeze(unsqueeze(mask, 0), 0), sizes);
  }
  if (!with_padding_mask) return mask;
  const auto masked_fill = [&] {
    const Tensor where = empty(context, Op::to_copy, sizes, DType::boolean);
    return empty(context, Op::masked_fill, sizes, like.dtype());
  };
  Tensor expanded_attn_mask;
  {  // _expand_mask
    const Tensor expanded_mask = empty(context, Op::to_copy, sizes, like.dtype());
    const Tensor inverted_mask = empty(context, Op::sub, sizes, like.dtype());
    expanded_attn_mask = masked_fill();
  }
  expanded_attn_mask = masked_fill();
  return expanded_attn_mask;
}

// LlamaModel._prepare_4d_causal_attention_mask_with_cache_position (4.44.2 to 4.51.3): one column too many, cut off by
// each layer. A 2-D attention mask makes it a copy a sample, filled in place.
Tensor cache_position_mask(const Tensor& like, bool with_padding_mask) {
  Context& context = like.context();
  const std::int64_t batch = like.size(0), length = like.size(1), columns = length + (with_padding_mask ? 0 : 1);
  Tensor mask = empty(context, Op::fill, {length, columns}, like.dtype());
  mask = empty(context, Op::triu, {length, columns}, like.dtype());
  {
    const Tensor range = empty(context, Op::arange, {columns}, DType::int64);
    const Tensor above = empty(context, Op::gt, {length, columns}, DType::boolean);
  }
  mask = expand(unsqueeze(unsqueeze(mask, 0), 0), {batch, 1, length, columns});
  if (!with_padding_mask) return slice(mask, -1, 0, length);
  mask = empty(context, Op::clone, {batch, 1, length, length}, like.dtype());
  Tensor padding = empty(context, Op::add, mask.sizes(), like.dtype());
  padding = empty(context, Op::eq, mask.sizes(), DType::boolean);
  const Tensor filled = empty(context, Op::masked_fill, mask.sizes(), like.dtype());
  return mask;
}

// masking_utils.py, sdpa_mask_recent_torch with packed_sequence_mask_function (4.57.1), through vmap.
Tensor packed_mask(const Tensor& like, const Tensor& sequences) {
  Context& context = like.context();
  const std::int64_t batch = like.size(0), length = like.size(1);
  const Tensor keys = empty(context, Op::arange, {length}, DType::int64);
  const Tensor batch_index = empty(context, Op::arange, {batch}, DType::int64);
  const Tensor head_index = empty(context, Op::arange, {1}, DType::int64);
  const Tensor ones = empty(context, Op::ones_like, {length}, DType::boolean);
  const Tensor causal = empty(context, Op::le, {length, length}, DType::boolean);
  const Tensor both = empty(context, Op::bitwise_and, {length, length}, DType::boolean);
  const auto gather = [&] {
    const Tensor rows = empty(context, Op::clone, sequences.sizes(), DType::int64);
    const Tensor columns = empty(context, Op::clone, sequences.sizes(), DType::int64);
    return empty(context, Op::index, sequences.sizes(), DType::int64);
  };
  const Tensor of_query = gather(), of_key = gather();
  const Tensor same = empty(context, Op::eq, {batch, 1, length, length}, DType::boolean);
  return empty(context, Op::bitwise_and, {batch, 1, length, length}, DType::boolean);
}

/// sdpa_mask and, of a floating-point type, eager_mask: [b, 1, queries, keys]. `slides`: of
/// and_masks(sliding_window_overlay, causal_mask_function).
Tensor causal_mask(Context& context, const Shape& sizes, DType dtype, bool slides) {
  const Shape all{1, 1, sizes[2], sizes[3]};
  const auto booleans = [&](Op op) { return empty(context, op, all, DType::boolean); };
  Tensor allowed;
  {
    const Tensor batch_index = empty(context, Op::arange, {sizes[0]}, DType::int64);
    const Tensor head_index = empty(context, Op::arange, {1}, DType::int64);
    const Tensor queries = arange_with_offset(context, sizes[2]);
    const Tensor keys = arange_with_offset(context, sizes[3]);
    Tensor window;
    if (slides) {
      const Tensor ones = empty(context, Op::ones_like, {}, DType::boolean);
      {
        const Tensor start = empty(context, Op::sub, {sizes[2]}, DType::int64);
        window = booleans(Op::gt);
      }
      window = booleans(Op::bitwise_and);
    }
    allowed = booleans(Op::le);
    if (slides) allowed = booleans(Op::bitwise_and);
  }
  if (dtype == DType::boolean) return expand(allowed, sizes);
  const Tensor zero = empty(context, Op::empty, {}, dtype);
  const Tensor minimum = empty(context, Op::empty, {}, dtype);
  return empty(context, Op::where, sizes, dtype);
}

}  // namespace

Tensor cached_mask(Context& context, const KvCache& cache, std::int64_t batch, std::int64_t queries, DType dtype,
                   std::int64_t sliding_window) {
  const std::int64_t keys = cache.mask_length(queries, sliding_window);
  // _ignore_causal_mask_sdpa, which a cache of one size is not asked when it decodes
  if (dtype == DType::boolean && !(cache.is_compileable() && queries == 1) &&
      !(sliding_window != 0 && keys >= sliding_window)) {
    if (queries == 1 || keys == queries) return {};
    if (cache.length() == 0) return {};
    // Such a cache's length is a tensor.
    if (cache.is_compileable()) const Tensor is_empty = empty(context, Op::eq, {}, DType::boolean);
  }
  return causal_mask(context, {batch, 1, queries, keys}, dtype, sliding_window != 0);
}

Tensor create_4d_causal_mask(const Tensor& inputs_embeds) {
  const NoGrad no_grad(inputs_embeds.context());
  return converter_mask(inputs_embeds, false);
}

Tensor create_causal_mask(const Tensor& inputs_embeds, const Tensor& position_ids, bool eager, bool with_padding_mask,
                          std::int64_t sliding_window) {
  Context& context = inputs_embeds.context();
  const NoGrad no_grad(context);
  const std::int64_t batch = inputs_embeds.size(0), length = inputs_embeds.size(1);
  if (const KvCache* cache = context.past_key_values) {
    if (cache->is_by_head()) return {};
    if (cache->masks) return cache->masks.of(sliding_window != 0);
    return cached_mask(context, *cache, batch, length, eager ? inputs_embeds.dtype() : DType::boolean, sliding_window);
  }
  switch (context.behaviours.causal_mask) {
    case CausalMask::converter:
      return eager ? converter_mask(inputs_embeds, with_padding_mask) : Tensor();
    case CausalMask::cache_position:
      return eager ? cache_position_mask(inputs_embeds, with_padding_mask) : Tensor();
    case CausalMask::always_packed: {
      if (!position_ids) break;
      Tensor mask = packed_mask(inputs_embeds, find_packed_sequences(context, batch, length, false));
      if (!eager) return mask;
      const Tensor zero = empty(context, Op::empty, {}, inputs_embeds.dtype());
      const Tensor minimum = empty(context, Op::empty, {}, inputs_embeds.dtype());
      return empty(context, Op::where, {batch, 1, length, length}, inputs_embeds.dtype());
    }
    case CausalMask::packed_when_detected:
      if (position_ids) find_packed_sequences(context, batch, length, true);
      break;
  }
  if (!eager && (sliding_window == 0 || length < sliding_window)) return {};
  return causal_mask(context, {batch, 1, length, length}, eager ? inputs_embeds.dtype() : DType::boolean,
                     sliding_window != 0);
}

}  // namespace oometer
