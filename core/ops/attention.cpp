#include <algorithm>
#include <array>
#include <cmath>

#include "ops/attention_kernels.h"
#include "ops/cub.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

/// F.scaled_dot_product_attention on CUDA: ATen/native/transformers/attention.cpp, cuda/attention.cu,
/// cuda/attention_backward.cu, cuda/flash_attn/flash_api.cpp (PyTorch 2.15).
namespace oometer {

std::int64_t flash_splits(const Device& device, const Tensor& query, const Tensor& key, double dropout) {
  const std::int64_t head_dim = query.size(3);
  const std::int64_t block_n = head_dim <= 64 ? 256 : head_dim <= 128 ? 128 : 64;
  // One query: those of a key head are taken for so many (seqlenq_ngroups_swapped).
  const bool swapped = query.size(2) == 1 && query.size(1) > key.size(1) && head_dim % 8 == 0 && dropout == 0;
  const std::int64_t heads = swapped ? key.size(1) : query.size(1);
  const std::int64_t queries = swapped ? query.size(1) / heads : query.size(2);
  const std::int64_t n_blocks = divide_up(key.size(2), block_n), m_blocks = divide_up(queries, 64);
  const std::int64_t blocks = checked_product(query.size(0), heads * m_blocks);
  const std::int64_t sms = std::int64_t{device.sm_count} * 2;
  if (static_cast<float>(blocks) >= 0.8F * static_cast<float>(sms)) return 1;
  const auto max_splits = static_cast<int>(std::min<std::int64_t>({128, sms, n_blocks}));
  const auto eligible = [&](int n) { return n == 1 || divide_up(n_blocks, n) != divide_up(n_blocks, n - 1); };
  std::array<float, 129> efficiency{};
  float best = 0.F;
  for (int n = 1; n <= max_splits; ++n) {
    if (!eligible(n)) continue;
    const float waves = static_cast<float>(blocks * n) / static_cast<float>(sms);
    efficiency[static_cast<unsigned>(n)] = waves / std::ceil(waves);
    best = std::max(best, efficiency[static_cast<unsigned>(n)]);
  }
  for (int n = 1; n <= max_splits; ++n)
    if (eligible(n) && static_cast<double>(efficiency[static_cast<unsigned>(n)]) >= 0.85 * static_cast<double>(best))
      return n;
  return 1;
}

namespace {

/// A new tensor of [b, heads, s, d] whose memory is [b, s, heads, d], as the fused kernels write it.
Tensor empty_bshd(Context& context, Op op, const Shape& bhsd, DType dtype) {
  const std::int64_t b = bhsd[0], h = bhsd[1], s = bhsd[2], d = bhsd[3];
  (void)b;
  return empty_strided(context, op, bhsd, {checked_product(s, h * d), d, h * d, 1}, dtype);
}

/// How often the products over the queries and keys are as deep as a query is wide, and as a value. Of a
/// causal one the kernels pass over the half that is masked; FlopCounterMode counts it.
struct Products {
  std::int64_t query, value;
};
constexpr Products kForward{1, 1}, kBackward{3, 2};  // the backward computes the scores again

void attention_kernel(Op op, const Tensor& query, const Tensor& key, const Tensor& value, const Products& products,
                      bool causal, std::int64_t read, std::int64_t written) {
  Context& context = query.context();
  if (context.stopped) return;
  const std::int64_t heads = checked_product(query.size(0), query.size(1)),
                     depth = products.query * query.size(3) + products.value * value.size(3);
  const std::int64_t flops =
      checked_product(checked_product(checked_product(2 * heads, query.size(2)), key.size(2)), depth);
  context.work({.op = static_cast<OpId>(op),
                .kind = WorkKind::attention,
                .dtype = query.dtype(),
                .read = read,
                .written = written},
               {.batch = heads,
                .m = query.size(2),
                .n = key.size(2),
                .k = query.size(3),
                .flops = causal ? flops / 2 : flops,
                .counted = flops});
}

/// Pads head_dim to a multiple of 8 (pad_last_dim): a copy.
Tensor pad_head_dim(const Tensor& x) {
  if (x.size(3) % 8 == 0) return x;
  Shape sizes = x.sizes();
  sizes[3] = round_up(sizes[3], 8);
  // constant_pad_nd_backward pads by less than nothing, which makes a copy in the usual order.
  Record record(Op::constant_pad_nd,
                [](Backward& b) { b.give(0, empty(b.context, Op::clone, b.node.sizes, b.grad().dtype())); }, {&x});
  if (record) record->sizes = x.sizes();
  return record.output(empty(x.context(), Op::constant_pad_nd, sizes, x.dtype()));
}

// mha_bwd
void flash_backward(Backward& b) {
  constexpr Op op = Op::flash_attention_backward;
  const Tensor &query = b.saved(0), &key = b.saved(1), &value = b.saved(2);
  Context& context = b.context;
  const std::int64_t batch = query.size(0), heads = query.size(1), length = query.size(2), head_dim = query.size(3);
  const std::int64_t kv_heads = key.size(1), kv_length = key.size(2), rounded = round_up(length, 128);
  Tensor dq, dk, dv;
  {
    // _flash_attention_backward: copies where these are not [b, s, h, d]; the gradient of a padded head is none.
    const Tensor grad_output = contiguous(transpose(b.grad(), 1, 2));
    const Tensor output = contiguous(transpose(b.saved(3), 1, 2));
    dq = empty_like(op, query);
    dk = empty_like(op, key);
    dv = empty_like(op, value);
    const Tensor softmax_d = empty(context, op, {batch, heads, rounded}, DType::float32);
    const Tensor dq_accumulator =
        empty(context, op, {batch, rounded, heads, rounded_head_dim(head_dim)}, DType::float32);
    Tensor dk_expanded, dv_expanded;
    if (heads != kv_heads) {
      dk_expanded = empty(context, op, {batch, kv_length, heads, head_dim}, query.dtype());
      dv_expanded = empty(context, op, {batch, kv_length, heads, head_dim}, query.dtype());
    }
    attention_kernel(op, query, key, value, kBackward, b.node.integers[0] != 0,
                     touched({&query, &key, &value, &output, &grad_output, &b.saved(4), &dq_accumulator}),
                     touched({&dq, &dk, &dv, &dq_accumulator}));
  }
  b.give(0, std::move(dq));
  b.give(1, std::move(dk));
  b.give(2, std::move(dv));
}

// mha_fwd
Tensor flash_attention(const Tensor& query_in, const Tensor& key_in, const Tensor& value_in,
                       const AttentionOptions& options) {
  constexpr Op op = Op::flash_attention;
  const Tensor query = pad_head_dim(query_in), key = pad_head_dim(key_in), value = pad_head_dim(value_in);
  Record record(op, flash_backward, {&query, &key, &value});
  record.save(key, 1);
  record.save(query, 0);
  record.save(value, 2);
  Context& context = query.context();
  const std::int64_t batch = query.size(0), heads = query.size(1), length = query.size(2), head_dim = query.size(3);
  Tensor output = empty_like(op, query);
  const Tensor logsumexp = empty(context, op, {batch, heads, length}, DType::float32);
  Tensor logsumexp_parts, output_parts;
  {
    const std::int64_t splits = options.dropout > 0 ? 1 : flash_splits(context.device, query, key, options.dropout);
    if (splits > 1) {
      logsumexp_parts = empty(context, op, {splits, batch, heads, length}, DType::float32);
      output_parts = empty(context, op, {splits, batch, heads, length, rounded_head_dim(head_dim)}, DType::float32);
    }
  }
  Tensor rng_state = empty(context, op, {2}, DType::int64);
  const Tensor unused = empty(context, op, {}, DType::int64);
  if (options.dropout > 0) rng_state = empty(context, op, {2}, DType::int64);
  logsumexp_parts.reset();
  output_parts.reset();
  if (record) record->integers[0] = options.causal;
  attention_kernel(op, query, key, value, kForward, options.causal, touched({&query, &key, &value}),
                   touched({&output, &logsumexp}));
  record.save_output(logsumexp, 4);
  record.save_output(output, 3);
  record.save_output(rng_state, 5);
  record.save_output(unused, 6);
  Tensor result = record.output(std::move(output));
  return head_dim == query_in.size(3) ? result : slice(result, 3, 0, query_in.size(3));
}

/// Scratch memory of the kernel in bytes (mem_eff_attention/kernel_backward.h, workspace_size): where dQ is summed up
/// over key blocks, in float32, with a lock a block; heads too wide for registers also sum dK and dV there, in half
/// precision. Sizes confirmed for heads of 32 to 256 in bfloat16 and float32.
std::int64_t efficient_backward_workspace(const Tensor& query, const Tensor& key, const Tensor& value) {
  const std::int64_t head_dim = std::max(query.size(3), value.size(3)), heads = query.size(0) * query.size(1);
  const bool half = is_half(query.dtype());
  const std::int64_t block_rows = head_dim <= 64 ? 64 : 128;
  const std::int64_t block_columns = half && head_dim > 64 && head_dim <= 128 ? 128 : 64;
  const std::int64_t rows = round_up(query.size(2), block_rows), columns = round_up(query.size(3), block_columns);
  std::int64_t bytes = 4 * rows * columns + 16 * (rows / block_rows) * (columns / block_columns);
  if (half && head_dim > 128) {
    // num_splits_key (cuda/attention_backward.cu): a block of keys each, 200 over all heads at most.
    const std::int64_t splits =
        std::max<std::int64_t>(1, std::min(divide_up(key.size(2), 64), 200 / std::max<std::int64_t>(1, heads)));
    bytes += std::int64_t{4} * 64 * splits * (round_up(query.size(3), 128) + round_up(value.size(3), 128));
  }
  return checked_product(heads, bytes);
}

// _efficient_attention_backward: attention_backward.cu
void efficient_backward(Backward& b) {
  constexpr Op op = Op::efficient_attention_backward;
  const Tensor &query = b.saved(0), &key = b.saved(1), &value = b.saved(2);
  Context& context = b.context;
  const std::int64_t batch = query.size(0), heads = query.size(1), length = query.size(2), head_dim = query.size(3);
  const Shape rows{batch, heads, length};
  Tensor dq = empty_bshd(context, op, query.sizes(), query.dtype());
  Tensor dk = empty_bshd(context, op, key.sizes(), key.dtype());
  Tensor dv = empty_bshd(context, op, value.sizes(), value.dtype());
  if (b.node.edges.size() > 3) {  // "force alignment for the last dim"
    const Shape sizes{batch, heads, length, key.size(2)};
    Shape aligned = sizes;
    aligned[3] = round_up(aligned[3], 16);
    const Tensor of_bias = empty(context, op, aligned, query.dtype());
    b.give(3, alias(of_bias, sizes, of_bias.strides()));
  }
  {
    Tensor dk_expanded, dv_expanded, delta;
    if (heads != key.size(1)) {
      dk_expanded = empty(context, op, {batch, key.size(2), heads, head_dim}, key.dtype());
      dv_expanded = empty(context, op, {batch, key.size(2), heads, value.size(3)}, key.dtype());
    }
    if (is_half(query.dtype())) {
      delta = empty(context, op, rows, DType::float32);
    } else {
      // delta = (grad_out * out).sum(-1).transpose(-2, -1).contiguous()
      const Tensor product = empty_like(op, b.grad());
      const Tensor sums = empty(context, op, rows, DType::float32);
      delta = empty(context, op, rows, DType::float32);
    }
    const Workspace workspace(context, op, efficient_backward_workspace(query, key, value));
    attention_kernel(op, query, key, value, kBackward, b.node.integers[0] != 0,
                     touched({&query, &key, &value, &b.saved(3), &b.grad(), &b.saved(4)}), touched({&dq, &dk, &dv}));
    delta.reset();
  }
  b.give(0, std::move(dq));
  b.give(1, std::move(dk));
  b.give(2, std::move(dv));
}

Tensor efficient_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias,
                           const AttentionOptions& options) {
  constexpr Op op = Op::efficient_attention;
  Record record = bias && bias.requires_grad() ? Record(op, efficient_backward, {&query, &key, &value, &bias})
                                               : Record(op, efficient_backward, {&query, &key, &value});
  if (bias) record.save(bias, 7);
  record.save(key, 1);
  record.save(query, 0);
  record.save(value, 2);
  Context& context = query.context();
  // Of a dropout they are in host memory, unless a CUDA graph is recorded (attention.cu, "Seed and Offset Device").
  Tensor seed, offset;
  if (options.dropout == 0) {
    seed = empty(context, op, {}, DType::int64);
    offset = empty(context, op, {}, DType::int64);
  }
  Shape sizes = query.sizes();
  sizes[3] = value.size(3);
  Tensor output = empty_bshd(context, op, sizes, query.dtype());
  const std::int64_t rows = record ? round_up(query.size(2), 32) : 0;
  const Tensor logsumexp = empty(context, op, {query.size(0), query.size(1), rows}, DType::float32);
  // Heads too wide for registers: the output is summed up in float32.
  if (is_half(query.dtype()) && std::max(query.size(3), value.size(3)) > 128)
    const Tensor sums = empty(context, op, sizes, DType::float32);
  if (record) record->integers[0] = options.causal;
  attention_kernel(op, query, key, value, kForward, options.causal, touched({&query, &key, &value, &bias}),
                   touched({&output, &logsumexp}));
  record.save_output(logsumexp, 4);
  record.save_output(output, 3);
  if (offset) record.save_output(offset, 6);
  if (seed) record.save_output(seed, 5);
  return record.output(std::move(output));
}

/// convert_boolean_attn_mask (ATen/native/transformers/attention.cpp): 0 where allowed, -inf elsewhere.
Tensor convert_boolean_attn_mask(const Tensor& mask, DType dtype) {
  if (!mask || mask.dtype() != DType::boolean) return mask;
  Context& context = mask.context();
  const Tensor zero = empty(context, Op::empty, {}, dtype);
  const Tensor minimum = empty(context, Op::empty, {}, dtype);
  return empty(context, Op::where, mask.sizes(), dtype);
}

/// pad_bias: the efficient kernel wants rows of 8.
Tensor pad_bias(const Tensor& bias) {
  if (!bias) return bias;
  const std::int64_t columns = round_up(bias.size(-1), 8);
  if (columns == bias.size(-1)) return bias;
  if (bias.requires_grad()) return slice(pad(bias, bias.ndim() - 1, columns - bias.size(-1)), -1, 0, bias.size(-1));
  Shape padded = bias.sizes();
  padded[-1] = columns;
  return slice(empty(bias.context(), Op::constant_pad_nd, padded, bias.dtype()), -1, 0, bias.size(-1));
}

// _scaled_dot_product_cudnn_attention; the backward's workspace after cudnn-frontend, CompositeSDPABackwardNode:
// a float32 accumulator of dQ and the sum of the softmax's gradient.
void cudnn_backward(Backward& b) {
  constexpr Op op = Op::cudnn_attention_backward;
  const Tensor &query = b.saved(0), &key = b.saved(1), &value = b.saved(2);
  Context& context = b.context;
  Tensor dq = empty_like(op, query), dk = empty_like(op, key), dv = empty_like(op, value);
  {
    const std::int64_t rows = checked_product(query.size(0) * query.size(1), query.size(2));
    const Workspace workspace(context, op, checked_product(rows, 4 * (query.size(3) + 1)));
  }
  attention_kernel(op, query, key, value, kBackward, b.node.integers[0] != 0,
                   touched({&query, &key, &value, &b.saved(3), &b.grad(), &b.saved(4)}), touched({&dq, &dk, &dv}));
  b.give(0, std::move(dq));
  b.give(1, std::move(dk));
  b.give(2, std::move(dv));
}

/// alloc_with_matching_layout (ATen/native/cudnn/MHA.cpp): the query's order of heads and tokens.
Tensor empty_as_query(Op op, const Tensor& query, const Shape& sizes) {
  if (query.strides()[1] < query.strides()[2]) return empty_bshd(query.context(), op, sizes, query.dtype());
  return empty(query.context(), op, sizes, query.dtype());
}

Tensor cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value, const Tensor& bias, bool causal) {
  constexpr Op op = Op::cudnn_attention;
  Record record(op, cudnn_backward, {&query, &key, &value});
  if (bias) record.save(bias, 7);
  record.save(key, 1);
  record.save(query, 0);
  record.save(value, 2);
  Context& context = query.context();
  const Tensor seed = empty(context, op, {}, DType::int64);
  const Tensor offset = empty(context, op, {}, DType::int64);
  Shape sizes = query.sizes();
  sizes[3] = value.size(3);
  Tensor output = empty_as_query(op, query, sizes);
  Tensor logsumexp;
  if (record) {
    logsumexp = empty(context, op, {query.size(0), query.size(1), query.size(2), 1}, DType::float32);
    record->integers[0] = causal;
  }
  attention_kernel(op, query, key, value, kForward, causal, touched({&query, &key, &value, &bias}),
                   touched({&output, &logsumexp}));
  if (logsumexp) record.save_output(logsumexp, 4);
  record.save_output(output, 3);
  record.save_output(offset, 6);
  record.save_output(seed, 5);
  return record.output(std::move(output));
}

/// repeat_interleave of keys or values over the query heads they serve.
Tensor repeat_heads(const Tensor& x, std::int64_t heads) {
  if (x.size(1) == heads) return x;
  const Shape wide{x.size(0), x.size(1), heads / x.size(1), x.size(2), x.size(3)};
  return unsafe_view(contiguous(expand(unsqueeze(x, 2), wide)), {x.size(0), heads, x.size(2), x.size(3)});
}

/// at::_safe_softmax: rows that are masked through and through become zeros, in place.
Tensor safe_softmax(const Tensor& scores) {
  Tensor result = softmax(scores, scores.dtype());
  const Tensor masked = empty(scores.context(), Op::eq, scores.sizes(), DType::boolean);
  const Tensor masked_rows =
      empty(scores.context(), Op::all, {scores.size(0), scores.size(1), scores.size(2), 1}, DType::boolean);
  const Tensor zero = empty(scores.context(), Op::empty, {}, scores.dtype());
  return result;
}

/// ones([queries, keys]).tril(), converted.
Tensor causal_bias(Context& context, std::int64_t queries, std::int64_t keys, DType dtype) {
  Tensor allowed;
  {
    const Tensor ones = empty(context, Op::ones_like, {queries, keys}, DType::boolean);
    allowed = empty(context, Op::triu, {queries, keys}, DType::boolean);
  }
  return convert_boolean_attn_mask(allowed, dtype);
}

// _scaled_dot_product_attention_math: halves are computed in float32.
Tensor math_attention(const Tensor& query_in, const Tensor& key_in, const Tensor& value_in, const Tensor& mask_in,
                      const AttentionOptions& options) {
  const DType origin = query_in.dtype();
  Context& context = query_in.context();
  const Tensor query_acc = to(query_in, DType::float32), key_acc = to(key_in, DType::float32),
               value_acc = to(value_in, DType::float32);
  const Tensor query = mul_scalar(query_acc);
  const Tensor mask = options.causal ? causal_bias(context, query.size(2), key_acc.size(2), DType::float32) : mask_in;
  const Tensor key = options.enable_gqa ? repeat_heads(key_acc, query.size(1)) : key_acc;
  const Tensor value = options.enable_gqa ? repeat_heads(value_acc, query.size(1)) : value_acc;
  Tensor attention;
  {
    const Tensor scaled_key = mul_scalar(transpose(key, 2, 3));
    attention = matmul(query, scaled_key);
  }
  if (mask) attention = context.behaviours.dispatch_mode ? add(attention, mask) : add_bias_(std::move(attention), mask);
  attention = safe_softmax(attention);
  attention = dropout(attention, options.dropout);
  const Tensor weights = to(attention, origin);  // the second result; nobody keeps it
  const Tensor output = matmul(attention, value);
  return to(output, origin);
}

}  // namespace

Tensor scaled_dot_product_attention(AttentionKernel kernel, const Tensor& query_in, const Tensor& key_in,
                                    const Tensor& value_in, const Tensor& mask_in, const AttentionOptions& options) {
  const Tensor mask_lower = autocast_lower(mask_in);
  const Tensor value = autocast_lower(value_in), key = autocast_lower(key_in), query = autocast_lower(query_in);
  // What it is made of is not cast again: cached_cast's ExcludeDispatchKeyGuard (ATen/autocast_mode.h, WrapFunction_).
  const Scoped<bool> autocast(query.context().autocast.enabled, false);
  Tensor mask = convert_boolean_attn_mask(mask_lower, query.dtype());
  switch (kernel) {
    case AttentionKernel::flash:
      return flash_attention(query, key, value, options);
    case AttentionKernel::efficient:
      mask = pad_bias(mask);
      if (mask && mask.requires_grad()) mask = expand(mask, {query.size(0), query.size(1), query.size(2), key.size(2)});
      return efficient_attention(query, key, value, mask, options);
    case AttentionKernel::cudnn:
      return cudnn_attention(query, key, value, mask, options.causal);
    case AttentionKernel::math:
      break;
  }
  return math_attention(query, key, value, mask, options);
}

}  // namespace oometer
