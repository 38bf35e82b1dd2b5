#include "ops/attention_kernels.h"
#include "ops/ops.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

/// The packages flash-attn 2 (2.8: flash_attn/flash_attn_interface.py, csrc/flash_attn/flash_api.cpp) and 3 (hopper/
/// flash_attn_interface.py, flash_api.cpp, with every head size compiled in). From source, not measured; what calls
/// them was recorded (tools/packages/flash_attn).
namespace oometer {

namespace {

/// A kernel whose products over all pairs of tokens are `products` times as deep as a head is wide. FlopCounterMode
/// does not know it.
void attention_work(Op op, const Tensor& query, std::int64_t products, bool causal, std::int64_t longest,
                    std::int64_t pairs, std::int64_t read, std::int64_t written) {
  Context& context = query.context();
  if (context.stopped) return;
  const std::int64_t heads = query.size(-2), head_dim = query.size(-1);
  const std::int64_t flops = checked_product(checked_product(2 * heads, pairs), products * head_dim);
  context.work({.op = static_cast<OpId>(op),
                .kind = WorkKind::attention,
                .dtype = query.dtype(),
                .read = read,
                .written = written},
               {.batch = heads, .m = longest, .n = longest, .k = head_dim, .flops = causal ? flops / 2 : flops});
}

/// Pads head_dim to a multiple of 8, under no_grad: forward of an autograd.Function.
Tensor pad_head(const Tensor& x) {
  const std::int64_t head_dim = x.size(-1);
  if (head_dim % 8 == 0) return x;
  Shape sizes = x.sizes();
  sizes[-1] = round_up(head_dim, 8);
  return empty(x.context(), Op::constant_pad_nd, sizes, x.dtype());
}

/// What the backward of either package does and gives: gradients of heads as wide as they were.
void give_gradients(Backward& b, Tensor dq, Tensor dk, Tensor dv) {
  attention_work(Op::flash_attn_backward, b.saved(0), 5, b.node.integers[0] != 0, b.node.integers[1], b.node.sizes[0],
                 touched({&b.saved(0), &b.saved(1), &b.saved(2), &b.saved(3), &b.grad(), &b.saved(4)}),
                 touched({&dq, &dk, &dv}));
  const std::int64_t head_dim = b.grad().size(-1);
  const auto as_given = [&](Tensor gradient) {
    return head_dim == gradient.size(-1) ? std::move(gradient) : slice(gradient, -1, 0, head_dim);
  };
  b.give(0, as_given(std::move(dq)));
  b.give(1, as_given(std::move(dk)));
  b.give(2, as_given(std::move(dv)));
}

/// mha_varlen_bwd leaves so many rows free behind each sequence.
constexpr std::int64_t kRowsBetween = 128;

// FlashAttnFunc.backward, FlashAttnVarlenFunc.backward
void flash_attn_backward(Backward& b) {
  constexpr Op op = Op::flash_attn_backward;
  const Tensor &query = b.saved(0), &key = b.saved(1), &value = b.saved(2);
  Context& context = b.context;
  const bool varlen = query.ndim() == 3;
  const std::int64_t heads = query.size(-2), head_dim = query.size(-1);
  Tensor dq = empty_like(op, query), dk = empty_like(op, key), dv = empty_like(op, value);
  const Tensor dout = pad_head(b.grad());
  {
    Tensor softmax_d, dq_accumulator, dk_expanded, dv_expanded;
    Shape wide = key.sizes();
    wide[-2] = heads;
    if (varlen) {
      const std::int64_t rows = query.size(0) + kRowsBetween * (b.saved(5).numel() - 1);
      softmax_d = empty(context, op, {heads, rows}, DType::float32);
      dq_accumulator = empty(context, op, {rows, heads, rounded_head_dim(head_dim)}, DType::float32);
    } else {
      const std::int64_t batch = query.size(0), rounded = round_up(query.size(1), 128);
      softmax_d = empty(context, op, {batch, heads, rounded}, DType::float32);
      dq_accumulator = empty(context, op, {batch, rounded, heads, rounded_head_dim(head_dim)}, DType::float32);
    }
    if (heads != key.size(-2)) {
      dk_expanded = empty(context, op, wide, query.dtype());
      dv_expanded = empty(context, op, wide, query.dtype());
    }
  }
  give_gradients(b, std::move(dq), std::move(dk), std::move(dv));
}

/// The kernels' blocks of rows, of queries and of keys, which mha_bwd rounds to (hopper/flash_api.cpp), causal.
struct Blocks {
  std::int64_t queries, keys;
};

Blocks blocks_of(const Device& device, std::int64_t head_dim, bool causal) {
  if (device.major >= 9) {
    const std::int64_t of_128 = causal ? 64 : 80;
    return {head_dim <= 64    ? 128
            : head_dim <= 96  ? 64
            : head_dim <= 128 ? of_128
                              : 64,
            head_dim <= 128   ? 128
            : head_dim <= 192 ? 96
                              : 80};
  }
  if (device.major == 8 && (device.minor == 6 || device.minor == 9))
    return {head_dim <= 192 ? 64 : 32, head_dim <= 96 ? 128 : head_dim <= 128 ? 96 : 64};
  return {head_dim <= 64 ? 128 : 64, head_dim <= 128 ? 128 : head_dim <= 192 ? 80 : 64};
}

/// round_up_headdim
std::int64_t head_dim_of_kernel(std::int64_t head_dim) {
  for (const std::int64_t size : {64, 96, 128, 192})
    if (head_dim <= size) return size;
  return 256;
}

// flash_attn_interface's FlashAttnFunc.backward, FlashAttnVarlenFunc.backward (hopper); mha_bwd
void flash_attn_3_backward(Backward& b) {
  constexpr Op op = Op::flash_attn_backward;
  const Tensor &query = b.saved(0), &key = b.saved(1), &value = b.saved(2);
  Context& context = b.context;
  const bool varlen = query.ndim() == 3;
  const std::int64_t heads = query.size(-2), kv_heads = key.size(-2), head_dim = head_dim_of_kernel(query.size(-1));
  const Blocks blocks = blocks_of(context.device, head_dim, b.node.integers[0] != 0);
  const std::int64_t batch = varlen ? b.saved(5).numel() - 1 : query.size(0);
  const std::int64_t longest = varlen ? b.node.integers[1] : query.size(1);
  Tensor dq = empty_like(op, query), dk = empty_like(op, key), dv = empty_like(op, value);
  const Tensor dout = pad_head(b.grad());
  {
    const auto floats = [&](const Shape& sizes) { return empty(context, op, sizes, DType::float32); };
    const auto rows_of = [&](const Tensor& x, std::int64_t block) {
      return varlen ? round_up(x.size(0) + batch * block, block) : checked_product(batch, round_up(x.size(1), block));
    };
    const std::int64_t rows = rows_of(query, blocks.queries), kv_rows = rows_of(key, blocks.keys);
    const Tensor softmax_d = floats({heads, rows}), softmax_lse_log2 = floats({heads, rows});
    const Tensor dq_accumulator = floats({heads, rows, head_dim});
    Tensor dk_accumulator, dv_accumulator;
    if (heads != kv_heads) {
      dk_accumulator = floats({kv_heads, kv_rows, head_dim});
      dv_accumulator = floats({kv_heads, kv_rows, head_dim});
    }
    const Tensor dq_semaphore = empty(context, op, {divide_up(longest, blocks.queries), batch, heads}, DType::int32);
  }
  give_gradients(b, std::move(dq), std::move(dk), std::move(dv));
}

Tensor flash_attn(const Tensor& query_in, const Tensor& key_in, const Tensor& value_in, const Tensor& cu_seqlens,
                  const FlashOptions& options) {
  constexpr Op op = Op::flash_attn;
  const bool third = options.version == 3;
  Record record(op, third ? flash_attn_3_backward : flash_attn_backward, {&query_in, &key_in, &value_in});
  Context& context = query_in.context();
  const Tensor query = pad_head(query_in), key = pad_head(key_in), value = pad_head(value_in);
  record.save(query);
  record.save(key);
  record.save(value);
  Tensor output = empty_like(op, query);
  Tensor softmax_lse;
  if (cu_seqlens) {
    softmax_lse = empty(context, op, {query.size(1), query.size(0)}, DType::float32);
  } else {
    const std::int64_t batch = query.size(0), length = query.size(1), heads = query.size(2);
    softmax_lse = empty(context, op, {batch, heads, length}, DType::float32);
  }
  Tensor lse_parts, output_parts;
  if (!cu_seqlens && options.dropout == 0 && !third) {  // set_params_splitkv
    const Tensor bhsd_query = transpose(query, 1, 2), bhsd_key = transpose(key, 1, 2);
    if (const std::int64_t splits = flash_splits(context.device, bhsd_query, bhsd_key, 0); splits > 1) {
      const Shape& sizes = bhsd_query.sizes();
      lse_parts = empty(context, op, {splits, sizes[0], sizes[1], sizes[2]}, DType::float32);
      output_parts =
          empty(context, op, {splits, sizes[0], sizes[1], sizes[2], rounded_head_dim(sizes[3])}, DType::float32);
    }
  }
  Tensor rng_state, semaphore, blocks_of_sequences;
  if (!third) rng_state = empty(context, op, {2}, DType::int64);
  if (third && (options.causal || (cu_seqlens && context.device.major >= 9)) &&
      (context.device.major >= 9 || !cu_seqlens))  // persistent_scheduler, of one split
    semaphore = empty(context, op, {1}, DType::int32);
  if (third && cu_seqlens) blocks_of_sequences = empty(context, op, {3 * (cu_seqlens.numel() - 1)}, DType::int32);
  lse_parts.reset();
  output_parts.reset();
  semaphore.reset();
  blocks_of_sequences.reset();
  attention_work(op, query, 2, options.causal, options.longest, options.pairs, touched({&query, &key, &value}),
                 touched({&output, &softmax_lse}));
  record.save_output(output);
  record.save_output(softmax_lse);
  if (cu_seqlens) record.save(cu_seqlens);
  if (rng_state) record.save_output(rng_state);
  if (record) {
    record->integers[0] = options.causal;
    record->integers[1] = options.longest;
    record->sizes = {options.pairs};
  }
  const std::int64_t head_dim = query_in.size(-1);
  Tensor result = record.output(std::move(output));
  return head_dim == query.size(-1) ? result : slice(result, -1, 0, head_dim);
}

}  // namespace

Tensor flash_attn_func(const Tensor& query, const Tensor& key, const Tensor& value, const FlashOptions& options) {
  return flash_attn(query, key, value, {}, options);
}

Tensor flash_attn_varlen_func(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& cu_seqlens,
                              const FlashOptions& options) {
  return flash_attn(query, key, value, cu_seqlens, options);
}

}  // namespace oometer
