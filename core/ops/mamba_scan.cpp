#include "ops/mamba_scan.h"

#include <algorithm>

#include "ops/launch.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "rounding.h"
#include "tensor/kernel.h"
#include "tensor/node.h"

namespace oometer {

namespace {

constexpr Op kOp = Op::mamba_chunk_scan;

/// Of one call.
struct Scan {
  std::int64_t batch, length, heads, head_dim, groups, state, chunk_size, chunks;
  DType dtype;  ///< of the convolution's result

  std::int64_t inner() const { return heads * head_dim; }
  std::int64_t channels() const { return inner() + 2 * groups * state; }
  Shape by_head() const { return {batch, length, heads, head_dim}; }
  Shape of_tokens() const { return {batch, heads, chunks, chunk_size}; }
  Shape states() const { return {batch, chunks, heads, head_dim, state}; }
  Shape products() const { return {batch, chunks, groups, chunk_size, chunk_size}; }
  /// A group's heads, as many programs as multiprocessors want, add up apart (nheads_per_program).
  std::int64_t splits(const Device& device) const {
    const std::int64_t of_group = heads / groups,
                       wanted = divide_up(batch * chunks * heads, std::int64_t{device.sm_count});
    return divide_up(of_group, std::max<std::int64_t>(std::min(wanted, of_group), 1));
  }
};

Tensor floats(Context& context, const Shape& sizes) { return empty(context, kOp, sizes, DType::float32); }

/// Products of each chunk, by head or by group: `each` is how many of them there are.
void multiply(Context& context, const Scan& s, std::int64_t each, std::int64_t rows, std::int64_t columns,
              std::int64_t inner) {
  gemm_kernel(context, kOp,
              {.batch = s.batch * s.chunks * each,
               .m = rows,
               .n = columns,
               .k = inner,
               .dtype = s.dtype,
               .read = 0,
               .written = 0,
               .is_counted = false});
}

/// What zxbcdt is split into.
struct Split {
  Tensor z, xbc, dt;
};
Split split_of(const Tensor& zxbcdt, const Scan& s) {
  const TensorList parts = split(zxbcdt, {s.inner(), s.channels(), s.heads}, -1);
  return {parts[0], parts[1], parts[2]};
}

/// ensure_stride: a copy where rows are not of 8 elements.
Tensor ensure_stride(const Tensor& x) { return x.strides()[1] % 8 == 0 ? x : contiguous(x); }

/// causal_conv1d_fwd_function of xBC: [b, s, channels].
Tensor convolved(const Tensor& xbc) {
  const Tensor channels_first = transpose(ensure_stride(xbc), 1, 2);
  return transpose(empty_like(Op::causal_conv1d, channels_first), 1, 2);
}

/// _chunk_cumsum_fwd
struct Steps {
  Tensor da_cumsum, dt;
};
Steps chunk_cumsum_fwd(Context& context, const Scan& s) {
  const Tensor dt = floats(context, s.of_tokens());
  const Tensor da_cumsum = floats(context, s.of_tokens());
  return {da_cumsum, dt};
}

/// _chunk_state_fwd, then _state_passing_fwd: the states before each chunk, and the one behind the last.
struct States {
  Tensor states, final_states;
};
States passed_states(Context& context, const Scan& s, DType dtype) {
  const Tensor own = floats(context, s.states());
  multiply(context, s, s.heads, s.head_dim, s.state, s.chunk_size);
  const Tensor states = empty(context, kOp, s.states(), dtype);
  const Tensor final_states = floats(context, {s.batch, s.heads, s.head_dim * s.state});
  return {states, final_states};
}

/// _mamba_chunk_scan_combined_fwd: out, before the gate out_x where there is one, and what its caller holds meanwhile.
struct ScanResult {
  Tensor out, out_x;
  Steps steps;
  States states;
};
ScanResult mamba_chunk_scan_combined_fwd(Context& context, const Scan& s, bool has_gate) {
  ScanResult r;
  r.steps = chunk_cumsum_fwd(context, s);
  r.states = passed_states(context, s, s.dtype);
  const Tensor cb = floats(context, s.products());
  multiply(context, s, s.groups, s.chunk_size, s.chunk_size, s.state);
  r.out = empty(context, kOp, s.by_head(), s.dtype);
  if (has_gate) r.out_x = empty(context, kOp, s.by_head(), s.dtype);
  multiply(context, s, s.heads, s.chunk_size, s.head_dim, s.chunk_size + s.state);
  return r;
}

/// Gradients of _mamba_chunk_scan_combined_bwd. Those of x, B, C, z and dt are written into their places.
struct ScanGradients {
  Tensor da, dd, ddt_bias, outz;
};
ScanGradients mamba_chunk_scan_combined_bwd(const Scan& s, const Tensor& dout_in, const Tensor& x, const Tensor& dt_in,
                                            const Tensor& a, const Tensor& d, const Tensor& dt_bias, bool has_gate) {
  Context& context = x.context();
  ScanGradients out;
  const Tensor dt_clone = clone(dt_in);
  const Steps steps = chunk_cumsum_fwd(context, s);
  const Tensor cb = floats(context, s.products());
  multiply(context, s, s.groups, s.chunk_size, s.chunk_size, s.state);
  States passed = passed_states(context, s, DType::float32);
  Tensor& states = passed.states;
  const std::int64_t tiles = divide_up(s.chunk_size, std::int64_t{32});
  const Shape of_d{tiles, s.batch, s.chunks, s.heads, 1};
  Tensor dout = dout_in;
  if (has_gate) {  // _chunk_scan_bwd_dz
    const Tensor dd = floats(context, of_d);
    out.outz = empty_like(kOp, x);
    const Tensor dout_x = empty_like(kOp, dout);
    out.dd = view(to(sum(dd, {0, 1, 2}, false), d.dtype()), {s.heads});
    dout = dout_x;
  }
  Tensor dstates = floats(context, s.states());  // _chunk_scan_bwd_dstates
  multiply(context, s, s.heads, s.head_dim, s.state, s.chunk_size);
  Tensor dda_chunk_cumsum;
  {  // _state_passing_bwd
    const Tensor dstates_out = empty_like(kOp, dstates, s.dtype);
    const Tensor converted = s.dtype == DType::float32 ? states : empty_like(kOp, states, s.dtype);
    dda_chunk_cumsum = floats(context, {s.batch, s.heads, s.chunks, divide_up(s.head_dim * s.state, std::int64_t{64})});
    dda_chunk_cumsum = sum(dda_chunk_cumsum, {-1}, false);
    dstates = dstates_out;
    states = converted;
  }
  Tensor ddt;
  {  // _chunk_scan_chunk_state_bwd_dx
    Tensor dd = empty(context, Op::zeros, of_d, DType::float32);
    ddt = floats(context, s.of_tokens());
    multiply(context, s, s.heads, s.chunk_size, s.head_dim, s.chunk_size + s.state);
    dd = sum(dd, {0, 1, 2}, false);
    dd = sum(dd, {-1}, false);
    dd = to(dd, d.dtype());
    if (!has_gate) out.dd = dd;
  }
  const std::int64_t splits = s.splits(context.device);
  const Shape of_groups{s.batch, s.length, splits, s.groups, s.state};
  Tensor dda_next, db, dda_prev, dc, dcb;
  {  // _chunk_state_bwd_db
    dda_next = floats(context, s.of_tokens());
    db = floats(context, of_groups);
    multiply(context, s, s.heads, s.chunk_size, s.state, s.head_dim);
    db = sum(db, {2}, false);
    kernel(Op::cumsum, {&dda_next}, dda_next);
  }
  {  // _chunk_scan_bwd_dC
    dda_prev = floats(context, s.of_tokens());
    dc = floats(context, of_groups);
    multiply(context, s, s.heads, s.chunk_size, s.state, s.head_dim);
    dc = sum(dc, {2}, false);
  }
  {  // _chunk_scan_bwd_dcb
    dcb = floats(context, {s.batch, s.chunks, splits, s.groups, s.chunk_size, s.chunk_size});
    multiply(context, s, s.heads, s.chunk_size, s.chunk_size, s.head_dim);
    dcb = sum(dcb, {2}, false);
  }
  multiply(context, s, s.groups, 2 * s.chunk_size, s.state, s.chunk_size);  // _bmm_chunk_bwd
  add_in_place(select(dda_prev, 3, s.chunk_size - 1), dda_chunk_cumsum);
  Tensor dda_before;
  {
    const Tensor sums = cumsum(flip(dda_prev), 3, DType::float32);
    dda_before = flip(sums);
  }
  Tensor dda = floats(context, {s.batch, s.heads, s.chunks, tiles, s.chunk_size});  // _chunk_scan_bwd_ddAcs_stable
  dda = sum(dda, {3}, false);
  add_in_place(dda, add(dda_next, dda_before));
  out.ddt_bias = empty_like(kOp, dt_bias, DType::float32);  // _chunk_cumsum_bwd
  out.da = empty_like(kOp, a, DType::float32);
  return out;
}

/// _layer_norm_fwd and _layer_norm_bwd (layernorm_gated.py).
struct NormResult {
  Tensor out, rstd;
};
NormResult layer_norm_fwd(const Tensor& x, const Scan& s) {
  const Tensor out = empty_like(kOp, x);
  const Tensor rstd = floats(x.context(), {s.groups * x.size(0)});
  return {out, rstd};
}
struct NormGradients {
  Tensor dx, dw;
};
NormGradients layer_norm_bwd(const Tensor& x, const Tensor& weight, const Scan& s) {
  Context& context = x.context();
  const Tensor dx = empty_like(kOp, x);
  const std::int64_t block =
      std::min<std::int64_t>(next_power_of_2(s.inner() / s.groups), 65536 / element_size(x.dtype()));
  const std::int64_t warps = std::min<std::int64_t>(std::max<std::int64_t>(block / 256, 1), 8);
  const std::int64_t rows = divide_up(context.device.sm_count * divide_up(std::int64_t{4}, warps), s.groups);
  const Tensor partial = floats(context, {rows, x.size(1)});
  const Tensor total = sum(partial, {0}, false);
  return {dx, to(total, weight.dtype())};
}

enum Saved : unsigned {
  kZxbcdt,
  kConvWeight,
  kConvBias,
  kOut,
  kA,
  kD,
  kDtBias,
  kNormWeight,
  kRstd,
  kOutWeight,
  kOutBias
};
/// Inputs of the node: of Mamba2Operands, in its order.
enum Input : unsigned {
  kToZxbcdt,
  kToConvWeight,
  kToConvBias,
  kToDtBias,
  kToA,
  kToD,
  kToNormWeight,
  kToOutWeight,
  kToOutBias
};

Scan scan_of(const Tensor& zxbcdt, const Tensor& conv1d_weight, const Tensor& d, std::int64_t chunk_size,
             std::int64_t groups) {
  Scan s{};
  s.batch = zxbcdt.size(0);
  s.length = zxbcdt.size(1);
  s.heads = d.size(0);
  const std::int64_t inner = zxbcdt.size(2) - conv1d_weight.size(0) - s.heads;
  s.head_dim = inner / s.heads;
  s.groups = groups;
  s.state = (conv1d_weight.size(0) - inner) / groups / 2;
  s.chunk_size = chunk_size;
  s.chunks = divide_up(s.length, chunk_size);
  s.dtype = zxbcdt.dtype();
  return s;
}

/// MambaSplitConv1dScanCombinedFn.backward.
void mamba_split_conv1d_scan_combined_backward(Backward& b) {
  Context& context = b.context;
  const AutocastRegion region(context, b.node.sizes[2] != 0);  // custom_bwd
  const Tensor &zxbcdt = b.saved(kZxbcdt), &conv_weight = b.saved(kConvWeight), &conv_bias = b.saved(kConvBias),
               &out = b.saved(kOut), &norm_weight = b.saved(kNormWeight), &out_weight = b.saved(kOutWeight);
  const Scan s = scan_of(zxbcdt, conv_weight, b.saved(kD), b.node.sizes[0], b.node.sizes[1]);
  const bool has_norm = static_cast<bool>(norm_weight);
  const Tensor recomputed = empty(context, kOp, {s.batch, s.length, s.inner()}, out.dtype());
  const Split parts = split_of(zxbcdt, s);
  const Tensor xbc_conv = convolved(parts.xbc);
  const Tensor x = view(split(xbc_conv, {s.inner(), s.channels() - s.inner()}, -1)[0], s.by_head());
  const Tensor dzxbcdt = empty_like(kOp, zxbcdt);
  const Tensor dxbc = empty_like(kOp, parts.xbc);
  const Tensor& dout_og = b.grad();
  const Tensor dout = linear(dout_og, transpose(out_weight, 0, 1), {});
  Tensor dnorm_weight, by_rows;
  ScanGradients scan;
  if (has_norm) {
    const Tensor rows = view(out, {s.batch * s.length, s.inner()});
    const NormGradients norm = layer_norm_bwd(rows, norm_weight, s);
    dnorm_weight = norm.dw;
    by_rows = norm.dx;
  }
  scan = mamba_chunk_scan_combined_bwd(s, view(has_norm ? by_rows : dout, s.by_head()), x, parts.dt, b.saved(kA),
                                       b.saved(kD), b.saved(kDtBias), !has_norm);
  const Tensor for_linear = has_norm ? recomputed : view(scan.outz, {s.batch, s.length, s.inner()});
  const Tensor dout_weight = einsum("bso", "bsd", "od", dout_og, for_linear);
  Tensor dout_bias;
  if (b.saved(kOutBias)) dout_bias = sum(dout_og, {0, 1}, false);
  Tensor dweight, dbias;
  {  // causal_conv1d_bwd_function, into dxBC's place
    const Tensor input = ensure_stride(parts.xbc);
    const Tensor gradient = ensure_stride(split_of(dzxbcdt, s).xbc);
    dweight = empty(context, Op::zeros, conv_weight.sizes(), DType::float32);
    if (conv_bias) dbias = empty(context, Op::zeros, conv_bias.sizes(), DType::float32);
    kernel(Op::causal_conv1d, {&input, &dxbc}, gradient);
    dweight = to(dweight, conv_weight.dtype());
    if (conv_bias) dbias = to(dbias, conv_bias.dtype());
  }
  const auto give = [&b](Input input, const Tensor& gradient) {
    if (gradient && b.wants(input)) b.give(input, gradient);
  };
  give(kToZxbcdt, dzxbcdt);
  give(kToConvWeight, dweight);
  give(kToConvBias, dbias);
  give(kToDtBias, scan.ddt_bias);
  give(kToA, scan.da);
  give(kToD, scan.dd);
  give(kToNormWeight, dnorm_weight);
  give(kToOutWeight, dout_weight);
  give(kToOutBias, dout_bias);
}

}  // namespace

Tensor mamba_split_conv1d_scan_combined(const Mamba2Operands& in) {
  Context& context = in.zxbcdt.context();
  Record record(kOp, mamba_split_conv1d_scan_combined_backward,
                {&in.zxbcdt, &in.conv1d_weight, &in.conv1d_bias, &in.dt_bias, &in.a, &in.d, &in.rmsnorm_weight,
                 &in.outproj_weight, &in.outproj_bias});
  const NoGrad no_grad(context);
  const Scan s = scan_of(in.zxbcdt, in.conv1d_weight, in.d, in.chunk_size, in.groups);
  const bool has_norm = static_cast<bool>(in.rmsnorm_weight);
  const Split parts = split_of(in.zxbcdt, s);
  const Tensor xbc_conv = convolved(parts.xbc);
  const ScanResult scan = mamba_chunk_scan_combined_fwd(context, s, !has_norm);
  NormResult norm;
  Tensor out = view(scan.out, {s.batch, s.length, s.inner()});
  if (has_norm) {
    norm = layer_norm_fwd(view(scan.out, {s.batch * s.length, s.inner()}), s);
    out = view(norm.out, {s.batch, s.length, s.inner()});
  }
  Tensor weight = in.outproj_weight, bias = in.outproj_bias;
  if (context.autocast.enabled) {
    out = to(out, context.autocast.dtype);
    weight = to(weight, context.autocast.dtype);
    if (bias) bias = to(bias, context.autocast.dtype);
  }
  out = linear(out, weight, bias);
  if (record) record->sizes = {in.chunk_size, in.groups, context.autocast.enabled};
  const Tensor& result = has_norm ? scan.out : scan.out_x;
  for (const Tensor& saved : {in.zxbcdt, in.conv1d_weight, in.conv1d_bias, result, in.a, in.d, in.dt_bias,
                              in.rmsnorm_weight, norm.rstd, weight, bias}) {
    if (saved)
      record.save(saved);
    else
      record.skip();
  }
  return record.output(out);
}

ChunkScan mamba_chunk_scan_combined(const Tensor& x, const Tensor& b, std::int64_t chunk_size) {
  const NoGrad no_grad(x.context());
  const Scan s{.batch = x.size(0),
               .length = x.size(1),
               .heads = x.size(2),
               .head_dim = x.size(3),
               .groups = b.size(2),
               .state = b.size(3),
               .chunk_size = chunk_size,
               .chunks = divide_up(x.size(1), chunk_size),
               .dtype = x.dtype()};
  const ScanResult scan = mamba_chunk_scan_combined_fwd(x.context(), s, false);
  return {scan.out, view(scan.states.final_states, {s.batch, s.heads, s.head_dim, s.state})};
}

Tensor selective_state_update(const Tensor& state, const Tensor& x) {
  Tensor out = empty_like(kOp, x);
  kernel(kOp, {&state, &x}, state);
  return out;
}

}  // namespace oometer
