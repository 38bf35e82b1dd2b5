#include "ops/linear_attention.h"

#include <algorithm>

#include "ops/launch.h"
#include "ops/ops.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer::fla {

namespace {

/// The largest tile of a head that a kernel takes, by the shared memory that a block can have (fla/utils/hardware.py,
/// check_shared_mem: 227 KiB as on Hopper, 163 KiB as on an A100, 99 KiB as on Ada).
std::int64_t const_tiling(const Device& device, DType dtype) {
  const bool is_consumer = (device.major == 8 && device.minor != 0 && device.minor != 7) || device.major == 12;
  if (device.major >= 9 && !is_consumer) return 128;
  if (device.major == 8 && !is_consumer) return element_size(dtype) == 2 ? 128 : 64;
  return is_consumer ? 64 : 32;
}

/// Its entries in Context::fla_tensor_cache (FLA_TENSOR_CACHE_SIZE).
constexpr std::size_t kCached = 4;

/// prepare_chunk_indices, prepare_chunk_offsets and the prepare_lens of both (ops/utils/index.py): all are kept, with
/// the cu_seqlens that they are of, until four others have come (utils/decorators.py, tensor_cache).
void prepare_chunks(const Documents& of) {
  Context& context = of.cu_seqlens.context();
  std::vector<std::vector<Tensor>>& cache = context.fla_tensor_cache;
  for (const std::vector<Tensor>& kept : cache)
    if (kept.front().get() == of.cu_seqlens.get()) return;
  const std::int64_t documents = of.cu_seqlens.numel() - 1;
  const Tensor lens = empty(context, Op::sub, {documents}, DType::int32);
  const Tensor indices = empty(context, Op::to_copy, {of.chunks, 2}, DType::int32);
  const Tensor offsets = empty(context, Op::cumsum, {documents + 1}, DType::int64);
  if (cache.size() == kCached) {
    for (Tensor& kept : cache.front()) kept.reset();  // in this order, whatever std::vector's is
    cache.erase(cache.begin());
  }
  cache.push_back({of.cu_seqlens, lens, indices, offsets});
}

/// What the kernels share of an operand's shape.
struct Chunked {
  std::int64_t batch, length, key_heads, heads, key_dim, value_dim, chunks;

  /// `of_documents`: chunks of a packed row's documents; 0: it is not packed.
  Chunked(const Tensor& k, const Tensor& v, std::int64_t of_documents = 0)
      : batch(k.size(0)),
        length(k.size(1)),
        key_heads(k.size(2)),
        heads(v.size(2)),
        key_dim(k.size(3)),
        value_dim(v.size(3)),
        chunks(of_documents > 0 ? of_documents : divide_up(length, kChunk)) {}

  Shape by_key() const { return {batch, length, heads, key_dim}; }
  Shape states() const { return {batch, chunks, heads, key_dim, value_dim}; }
};

/// Products inside an Op's kernels, of each chunk's tokens, or of a state.
void multiply(Op op, const Tensor& like, const Chunked& c, std::int64_t rows, std::int64_t columns,
              std::int64_t inner) {
  gemm_kernel(like.context(), op,
              {.batch = c.batch * c.heads * c.chunks,
               .m = rows,
               .n = columns,
               .k = inner,
               .dtype = like.dtype(),
               .read = 0,
               .written = 0,
               .is_counted = false});
}

/// l2norm_fwd: x / |x|, and a number a row.
struct Normalised {
  Tensor y, rstd;
};
Normalised l2norm_fwd(Op op, const Tensor& x) {
  const Tensor y = empty_like(op, x);
  const Tensor rstd = empty(x.context(), Op::empty, {x.size(0), x.size(1), x.size(2)}, DType::float32);
  return {y, rstd};
}
Tensor l2norm_bwd(Op op, const Tensor& y) { return empty_like(op, y); }

/// chunk_local_cumsum: in float32.
Tensor chunk_local_cumsum(const Tensor& g) { return empty(g.context(), Op::cumsum, g.sizes(), DType::float32); }

/// recompute_w_u_fwd.
struct WyRepresentation {
  Tensor w, u;
};
WyRepresentation recompute_w_u_fwd(Op op, const Tensor& k, const Tensor& v) {
  const Chunked c(k, v);
  const Tensor w = empty(k.context(), op, c.by_key(), k.dtype());
  const Tensor u = empty_like(op, v);
  multiply(op, k, c, kChunk, c.key_dim + c.value_dim, kChunk);
  return {w, u};
}

/// The same of KDA, with gated keys, and queries where backward wants them (ops/kda/wy_fast.py).
struct KdaRepresentation : WyRepresentation {
  Tensor qg, kg;
};
KdaRepresentation recompute_w_u_fwd(const Tensor& k, const Tensor& v, bool wants_queries) {
  const Chunked c(k, v);
  KdaRepresentation out{recompute_w_u_fwd(Op::chunk_kda, k, v), {}, {}};
  if (wants_queries) out.qg = empty(k.context(), Op::chunk_kda, c.by_key(), k.dtype());
  out.kg = empty(k.context(), Op::chunk_kda, c.by_key(), k.dtype());
  return out;
}

/// chunk_gated_delta_rule_fwd_h: the states before each chunk, and the values that they do not know.
struct States {
  Tensor h, final_state, v_new;
};
States chunk_gated_delta_rule_fwd_h(Op op, const Tensor& k, const Tensor& u, bool output_final_state,
                                    std::int64_t chunks = 0) {
  const Chunked c(k, u, chunks);
  States out;
  out.h = empty(k.context(), op, c.states(), k.dtype());
  if (output_final_state)
    out.final_state =
        empty(k.context(), Op::zeros, {c.batch, c.heads, c.key_dim, c.value_dim}, DType::float32, Role::kv_cache);
  out.v_new = empty_like(op, u);
  multiply(op, k, c, 2 * kChunk, c.value_dim, c.key_dim);
  return out;
}

/// chunk_gated_delta_rule_bwd_dhu: the states' gradients; `dv` gets what flows through them.
Tensor chunk_gated_delta_rule_bwd_dhu(Op op, const Tensor& q, Tensor& dv, const Chunked& c) {
  const Tensor dh = empty(q.context(), op, c.states(), q.dtype());
  const Tensor dv2 = empty_like(op, dv);
  dv = dv2;
  multiply(op, q, c, 3 * kChunk, c.value_dim, c.key_dim);
  return dh;
}

/// chunk_bwd_dqkwg.
struct KernelGradients {
  Tensor dq, dk, dw, dg;
};
KernelGradients chunk_bwd_dqkwg(const Tensor& k, const Tensor& v, const Tensor& w) {
  Context& context = k.context();
  const Chunked c(k, v);
  const std::int64_t tile =
      std::min(std::max<std::int64_t>(next_power_of_2(c.key_dim), 16), const_tiling(context.device, k.dtype()));
  const std::int64_t tiles = divide_up(c.key_dim, tile);
  KernelGradients out;
  out.dq = empty(context, Op::chunk_gated_delta_rule, c.by_key(), k.dtype());
  out.dk = empty(context, Op::chunk_gated_delta_rule, c.by_key(), k.dtype());
  out.dg = empty(context, Op::chunk_gated_delta_rule, {tiles, c.batch, c.length, c.heads}, DType::float32);
  out.dw = empty_like(Op::chunk_gated_delta_rule, w);
  multiply(Op::chunk_gated_delta_rule, k, c, 4 * kChunk, c.value_dim, c.key_dim);
  const auto sum_of_heads = [&c](Tensor& x) {
    if (c.key_heads == c.heads) return;
    x = sum(view(x, {c.batch, c.length, c.key_heads, c.heads / c.key_heads, c.key_dim}), {3}, false);
  };
  sum_of_heads(out.dq);
  sum_of_heads(out.dk);
  out.dg = sum(out.dg, {0}, false);
  return out;
}

enum Saved : unsigned { kQ, kQRstd, kK, kKRstd, kV, kG, kBeta, kA, kAkk, kGInput };

/// Of query, key, value, g and beta, in this order.
void give(Backward& b, std::initializer_list<const Tensor*> gradients) {
  unsigned input = 0;
  for (const Tensor* gradient : gradients) {
    if (b.wants(input)) b.give(input, *gradient);
    ++input;
  }
}

/// ChunkGatedDeltaRuleFunction.backward.
void chunk_gated_delta_rule_backward(Backward& b) {
  const Op op = Op::chunk_gated_delta_rule;
  const AutocastRegion region(b.context, b.node.integers[0] != 0);  // custom_bwd
  const Tensor gradient = contiguous(b.grad());
  const Tensor &q = b.saved(kQ), &k = b.saved(kK), &v = b.saved(kV), &g = b.saved(kG), &beta = b.saved(kBeta);
  const Chunked c(k, v, b.node.integers[1]);
  Tensor dq, dk, dv, db, dg;
  {
    const WyRepresentation wy = recompute_w_u_fwd(op, k, v);
    const States states = chunk_gated_delta_rule_fwd_h(op, k, wy.u, false, c.chunks);
    dv = empty_like(op, gradient);  // chunk_bwd_dv_local
    const Tensor dh = chunk_gated_delta_rule_bwd_dhu(op, q, dv, c);
    KernelGradients its = chunk_bwd_dqkwg(k, states.v_new, wy.w);
    dq = std::move(its.dq);
    dk = std::move(its.dk);
    dg = std::move(its.dg);
    Tensor dk2, dg2;
    {  // prepare_wy_repr_bwd
      dk2 = empty(b.context, op, c.by_key(), k.dtype());
      const Tensor values = empty_like(op, v);
      dg2 = empty_like(op, g);
      db = empty_like(op, beta);
      if (c.key_heads != c.heads)
        dk2 = sum(view(dk2, {c.batch, c.length, c.key_heads, c.heads / c.key_heads, c.key_dim}), {3}, false);
      dv = values;
    }
    kernel(Op::add, {&dk, &dk2}, dk);
    kernel(Op::add, {&dg, &dg2}, dg);
    dg = chunk_local_cumsum(dg);
  }
  dq = l2norm_bwd(op, q);
  dk = l2norm_bwd(op, k);
  give(b, {&dq, &dk, &dv, &dg, &db});
}

/// ChunkKDAFunction.backward.
void chunk_kda_backward(Backward& b) {
  const Op op = Op::chunk_kda;
  const AutocastRegion region(b.context, b.node.integers[0] != 0);  // custom_bwd
  const Tensor gradient = contiguous(b.grad());
  const Tensor &q = b.saved(kQ), &k = b.saved(kK), &v = b.saved(kV), &g = b.saved(kG), &beta = b.saved(kBeta);
  const Chunked c(k, v);
  const auto float_like = [](const Tensor& x) { return empty_like(Op::chunk_kda, x, DType::float32); };
  Tensor dq, dk, dv, db, dg;
  {
    const KdaRepresentation wy = recompute_w_u_fwd(k, v, true);
    const States states = chunk_gated_delta_rule_fwd_h(op, wy.kg, wy.u, false);
    const Tensor da_qk = empty(b.context, op, b.saved(kA).sizes(), DType::float32);  // chunk_kda_bwd_dAv
    dv = empty_like(op, gradient);
    const Tensor dh = chunk_gated_delta_rule_bwd_dhu(op, wy.qg, dv, c);
    Tensor da_kk;
    {  // chunk_kda_bwd_wy_dqkg_fused
      dq = empty(b.context, op, c.by_key(), DType::float32);
      dk = empty(b.context, op, c.by_key(), DType::float32);
      const Tensor dv2 = empty_like(op, v);
      dg = float_like(g);
      db = float_like(beta);
      da_kk = float_like(b.saved(kAkk));
      dv = dv2;
      multiply(op, k, c, 4 * kChunk, c.value_dim, c.key_dim);
    }
    {  // chunk_kda_bwd_intra
      const std::int64_t tiles = divide_up(c.key_dim, std::min<std::int64_t>(32, next_power_of_2(c.key_dim)));
      const Tensor dq2 = empty_like(op, dq), dk2 = empty_like(op, dk);
      const Tensor db2 = empty(b.context, op, {tiles, c.batch, c.length, c.heads}, DType::float32);
      const Tensor dg2 = float_like(dg);
      const Tensor total = sum(db2, {0}, false);
      kernel(Op::add, {&total, &db}, total);
      dq = dq2;
      dk = dk2;
      db = total;
      dg = dg2;
    }
    for (Tensor* x : {&dq, &dk})
      if (c.key_heads != c.heads)
        *x = sum(view(*x, {c.batch, c.length, c.key_heads, c.heads / c.key_heads, c.key_dim}), {3}, false);
    dg = chunk_local_cumsum(dg);
  }
  dq = l2norm_bwd(op, q);
  dk = l2norm_bwd(op, k);
  dg = to(dg, b.saved(kGInput).dtype());
  db = to(db, beta.dtype());
  give(b, {&dq, &dk, &dv, &dg, &db});
}

/// One token's, into `output`.
DeltaRuleOutputs fused_recurrent(Op op, Op output, const DeltaRuleInputs& in) {
  Context& context = in.key.context();
  const NoGrad no_grad(context);
  TensorList guarded;
  for (const Tensor* x : {&in.query, &in.key, &in.value, &in.g, &in.beta}) guarded.push_back(contiguous(*x));
  const Chunked c(guarded[1], guarded[2]);
  const Tensor o = empty_like(output, guarded[2]);
  const Tensor final_state =
      empty(context, op, {c.batch, c.heads, c.key_dim, c.value_dim}, DType::float32, Role::kv_cache);
  return {o, final_state};
}

}  // namespace

DeltaRuleOutputs chunk_gated_delta_rule(const DeltaRuleInputs& in, bool output_final_state,
                                        const Documents& documents) {
  const Op op = Op::chunk_gated_delta_rule;
  Context& context = in.key.context();
  Record record(op, chunk_gated_delta_rule_backward, {&in.query, &in.key, &in.value, &in.g, &in.beta});
  const NoGrad no_grad(context);
  const Tensor query = contiguous(in.query), key = contiguous(in.key);  // input_guard
  const Tensor v = contiguous(in.value), raw_g = contiguous(in.g), beta = contiguous(in.beta);
  const Normalised q = l2norm_fwd(op, query), k = l2norm_fwd(op, key);
  if (documents.cu_seqlens) prepare_chunks(documents);
  const Chunked c(k.y, v, documents.chunks);
  const Tensor g = chunk_local_cumsum(raw_g);
  const Tensor a = empty(context, Op::zeros, {c.batch, c.length, c.heads, kChunk}, key.dtype());
  multiply(op, key, c, kChunk, kChunk, c.key_dim);
  const WyRepresentation wy = recompute_w_u_fwd(op, k.y, v);
  const States states = chunk_gated_delta_rule_fwd_h(op, k.y, wy.u, output_final_state, documents.chunks);
  const Tensor o = empty_like(op, v);  // chunk_fwd_o
  multiply(op, key, c, kChunk, 2 * c.value_dim, c.key_dim);
  if (record) {
    record->integers[0] = context.autocast.enabled;
    record->integers[1] = documents.chunks;
  }
  for (const Tensor* saved : {&q.y, &q.rstd, &k.y, &k.rstd, &v, &g, &beta, &a}) record.save(*saved);
  if (documents.cu_seqlens) record.save(documents.cu_seqlens);
  return {record.output(to(o, q.y.dtype())), states.final_state};
}

DeltaRuleOutputs chunk_kda(const DeltaRuleInputs& in, bool output_final_state) {
  const Op op = Op::chunk_kda;
  Context& context = in.key.context();
  Record record(op, chunk_kda_backward, {&in.query, &in.key, &in.value, &in.g, &in.beta});
  const NoGrad no_grad(context);
  const Tensor query = contiguous(in.query), key = contiguous(in.key);  // input_guard
  const Tensor v = contiguous(in.value), g_input = contiguous(in.g), beta = contiguous(in.beta);
  const Normalised q = l2norm_fwd(op, query), k = l2norm_fwd(op, key);
  const Chunked c(k.y, v);
  const Tensor g = chunk_local_cumsum(g_input);
  const Shape of_pairs{c.batch, c.length, c.heads, kChunk};
  const Tensor a_qk = empty(context, op, of_pairs, key.dtype());
  const Tensor a_kk = empty(context, Op::zeros, of_pairs, key.dtype());
  KdaRepresentation wy;
  {  // chunk_kda_fwd_intra
    const Tensor diagonals = empty(context, op, {c.batch, c.length, c.heads, 16}, DType::float32);
    multiply(op, key, c, 2 * kChunk, kChunk, c.key_dim);
    wy = recompute_w_u_fwd(k.y, v, false);
  }
  const States states = chunk_gated_delta_rule_fwd_h(op, wy.kg, wy.u, output_final_state);
  const Tensor o = empty_like(Op::zeros_like, v);  // chunk_gla_fwd_o_gk
  multiply(op, key, c, kChunk, c.value_dim, c.key_dim);
  if (record) record->integers[0] = context.autocast.enabled;
  for (const Tensor* saved : {&q.y, &q.rstd, &k.y, &k.rstd, &v, &g, &beta, &a_qk, &a_kk, &g_input}) record.save(*saved);
  return {record.output(to(o, q.y.dtype())), states.final_state};
}

DeltaRuleOutputs fused_recurrent_gated_delta_rule(const DeltaRuleInputs& in) {
  return fused_recurrent(Op::chunk_gated_delta_rule, Op::chunk_gated_delta_rule, in);
}

DeltaRuleOutputs fused_recurrent_kda(const DeltaRuleInputs& in) {
  return fused_recurrent(Op::chunk_kda, Op::zeros_like, in);
}

}  // namespace oometer::fla
