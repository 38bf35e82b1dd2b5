#include "nn/flash_attention.h"

#include <utility>

#include "ops/cub.h"
#include "ops/masks.h"

namespace oometer {

namespace {

struct Unpadded {
  Tensor indices;     ///< of the tokens that are none of padding
  Tensor cu_seqlens;  ///< [sequences + 1]
};

// _get_unpad_data
Unpadded unpad_data(const Tensor& mask, std::int64_t tokens) {
  Context& context = mask.context();
  const std::int64_t batch = mask.size(0);
  Unpadded data;
  const Tensor seqlens_in_batch = reduce(Op::sum, mask, {-1}, false, DType::int32);
  data.indices = view(nonzero(view(mask, {mask.numel()}), tokens), {tokens});
  { const Tensor max_seqlen_in_batch = reduce(Op::max, seqlens_in_batch, {0}, false, DType::int32); }
  Tensor sums;
  {
    sums = empty(context, Op::cumsum, {batch}, DType::int32);
    const Workspace scan(context, Op::cumsum, cub_scan_bytes(batch));
  }
  data.cu_seqlens = empty(context, Op::constant_pad_nd, {batch + 1}, DType::int32);
  return data;
}

// _index_first_axis
Tensor index_first_axis(const Tensor& x, const Tensor& indices) {
  return index(reshape(x, {checked_product(x.size(0), x.size(1)), x.size(2), x.size(3)}), indices);
}

// pad_input (flash_attn/bert_padding.py)
Tensor pad_input(const Tensor& x, const Tensor& indices, std::int64_t batch, std::int64_t length) {
  const Tensor output = index_put_first_axis(x, indices, checked_product(batch, length));
  return view(output, {batch, length, x.size(1), x.size(2)});
}

// _is_packed_sequence: whether it is, every layer finds out on the device.
void ask_whether_packed(const Tensor& position_ids) {
  Context& context = position_ids.context();
  const std::int64_t length = position_ids.size(-1);
  Tensor increasing;
  {
    const Tensor range = empty(context, Op::arange, {length}, DType::int64);
    const Tensor least = reduce(Op::minimum, position_ids, {0, 1}, false, DType::int64);
    increasing = empty(context, Op::add, {length}, DType::int64);
  }
  Tensor difference = pointwise(Op::sub, {&increasing, &position_ids}, DType::int64);
  difference = pointwise(Op::abs, {&difference}, DType::int64);
  Tensor total = sum_all(difference);
  difference.reset();
  total = to(total, DType::boolean);
}

// prepare_fa_kwargs_from_position_ids
Tensor cu_seqlens_of(const Tensor& position_ids, std::int64_t documents) {
  Context& context = position_ids.context();
  const Tensor flat = reshape(position_ids, {position_ids.numel()});
  Tensor indices;
  {
    Tensor starts;
    {
      const Tensor least = reduce(Op::minimum, flat, {0}, false, DType::int64);
      starts = pointwise(Op::eq, {&flat}, DType::boolean);
    }
    indices = nonzero(starts, documents);
  }
  Tensor cu_seqlens;
  {
    const Tensor begins = to(indices, DType::int32);
    const Tensor end = empty(context, Op::to_copy, {1}, DType::int32);
    cu_seqlens = empty(context, Op::cat, {documents + 1}, DType::int32);
  }
  const Tensor lengths = empty(context, Op::sub, {documents}, DType::int32);
  const Tensor most = reduce(Op::max, lengths, {0}, false, DType::int32);
  return cu_seqlens;
}

/// _flash_attention_forward: query, key and value [b, s, heads, d]
Tensor attend(const AttentionCall& call, Tensor query, Tensor key, Tensor value, const Tensor& mask,
              const Sequences& sequences) {
  Context& context = query.context();
  const std::int64_t batch = query.size(0), length = query.size(1);
  if (query.dtype() == DType::float32) {  // fa_peft_integration_check
    const DType target = context.autocast.dtype;
    query = to(query, target);
    key = to(key, target);
    value = to(value, target);
  }
  const int version = call.kind == AttentionKind::flash_attention_3 ? 3 : 2;
  FlashOptions options{call.causal, context.training ? call.dropout : 0, version, length,
                       checked_product(batch, checked_product(length, length))};
  const auto tell_sequences = [&](const Rows& rows) {
    options.longest = rows.longest();
    options.pairs = rows.pairs();
  };
  if (mask && sequences.rows) {
    tell_sequences(*sequences.rows);
    const std::int64_t tokens = sequences.rows->tokens();
    const Unpadded data = unpad_data(mask, tokens);
    Tensor k = index_first_axis(key, data.indices), v = index_first_axis(value, data.indices),
           q = index_first_axis(query, data.indices);
    const Tensor out = flash_attn_varlen_func(q, k, v, data.cu_seqlens, options);
    return pad_input(out, data.indices, batch, length);
  }
  const auto flat_sizes = [&](const Tensor& x) -> Shape {
    return {checked_product(batch, length), x.size(2), x.size(3)};
  };
  const auto flat = [&](const Tensor& x) { return view(contiguous(x), flat_sizes(x)); };
  if (sequences.cu_seq_lens && sequences.rows) {
    tell_sequences(*sequences.rows);
    const Tensor q = reshape(query, flat_sizes(query)), k = reshape(key, flat_sizes(key)),
                 v = reshape(value, flat_sizes(value));
    const Tensor out = flash_attn_varlen_func(q, k, v, sequences.cu_seq_lens, options);
    return view(out, {batch, length, out.size(1), out.size(2)});
  }
  if (sequences.position_ids && sequences.position_ids.ndim() == 2 && batch == 1 && length > 1) {
    ask_whether_packed(sequences.position_ids);
    if (sequences.rows && sequences.rows->are_packed()) {
      tell_sequences(*sequences.rows);
      const Tensor q = flat(query), k = flat(key), v = flat(value);
      const Tensor cu_seqlens = cu_seqlens_of(sequences.position_ids, sequences.rows->count());
      const Tensor out = flash_attn_varlen_func(q, k, v, cu_seqlens, options);
      return view(out, {batch, length, out.size(1), out.size(2)});
    }
  }
  return flash_attn_func(query, key, value, options);
}

}  // namespace

Tensor flash_attention_forward(const AttentionCall& call, const Tensor& query_in, const Tensor& key_in,
                               const Tensor& value_in, const Tensor& mask, const Sequences& sequences) {
  const std::int64_t head_dim = query_in.size(3), v_head_dim = value_in.size(3);
  const Tensor query = transpose(query_in, 1, 2), key = transpose(key_in, 1, 2);
  Tensor value = transpose(value_in, 1, 2);
  if (v_head_dim != head_dim) value = pad(value, 3, head_dim - v_head_dim);
  const Tensor output = attend(call, query, key, value, mask, sequences);
  return v_head_dim == head_dim ? output : slice(output, 3, 0, v_head_dim);
}

}  // namespace oometer
