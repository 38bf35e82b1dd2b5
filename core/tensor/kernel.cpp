#include "tensor/kernel.h"

#include <array>
#include <cstddef>

namespace oometer {

namespace {

constexpr WorkKind kind_of(Op op) {
  switch (op) {
    case Op::none:
    case Op::empty:
    case Op::parameter:
    case Op::buffer:
    case Op::input:
    case Op::bucket:
    case Op::narrow:
    case Op::split:
    case Op::item:
    case Op::cublas_workspace:
      return WorkKind::none;
    case Op::mm:
    case Op::addmm:
    case Op::bmm:
    case Op::baddbmm:
    case Op::grouped_mm:
    case Op::matmul_4bit:
    case Op::cut_cross_entropy:
    case Op::lora_qkv:
    case Op::lora_o:
    case Op::lora_mlp:
      return WorkKind::gemm;
    case Op::flash_attention:
    case Op::flash_attention_backward:
    case Op::flash_attn:
    case Op::flash_attn_backward:
    case Op::efficient_attention:
    case Op::efficient_attention_backward:
    case Op::cudnn_attention:
    case Op::cudnn_attention_backward:
      return WorkKind::attention;
    case Op::convolution:
    case Op::convolution_backward:
      return WorkKind::convolution;
    case Op::sum:
    case Op::mean:
    case Op::max:
    case Op::all:
    case Op::any:
    case Op::var:
    case Op::std:
    case Op::argmax:
    case Op::cumsum:
    case Op::histc:
    case Op::softmax:
    case Op::softmax_backward:
    case Op::log_softmax:
    case Op::log_softmax_backward:
    case Op::linalg_vector_norm:
    case Op::foreach_norm:
    case Op::native_layer_norm:
    case Op::native_layer_norm_backward:
    case Op::fused_rms_norm:
    case Op::fused_rms_norm_backward:
    case Op::liger_rms_norm:
    case Op::liger_layer_norm:
    case Op::chunked_log_probs:
    case Op::batch_norm:
    case Op::batch_norm_backward:
    case Op::native_group_norm:
    case Op::native_group_norm_backward:
    case Op::max_pool2d:
    case Op::avg_pool2d:
    case Op::adaptive_avg_pool2d:
      return WorkKind::reduction;
    case Op::to_copy:
    case Op::clone:
    case Op::copy:
    case Op::cat:
    case Op::stack:
    case Op::slice_backward:
    case Op::select_backward:
    case Op::constant_pad_nd:
    case Op::flatten:
    case Op::roll:
    case Op::flip:
    case Op::repeat:
    case Op::im2col:
    case Op::col2im:
      return WorkKind::copy;
    case Op::embedding:
    case Op::embedding_dense_backward:
    case Op::nll_loss_forward:
    case Op::nll_loss_backward:
    case Op::index:
    case Op::index_put:
    case Op::index_copy:
    case Op::index_select:
    case Op::masked_scatter:
    case Op::masked_select:
    case Op::nonzero:
    case Op::gather:
    case Op::isin:
      return WorkKind::index;
    case Op::topk:
    case Op::sort:
      return WorkKind::sort;
    case Op::all_reduce:
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::broadcast:
      return WorkKind::communication;
    case Op::fused_adam:
    case Op::foreach_sqrt:
    case Op::foreach_add:
    case Op::foreach_mul:
    case Op::foreach_lerp:
    case Op::foreach_addcdiv:
    case Op::fused_sgd:
    case Op::fused_adagrad:
    case Op::foreach_sub:
    case Op::foreach_div:
    case Op::foreach_addcmul:
    case Op::foreach_abs:
    case Op::foreach_maximum:
    case Op::foreach_clamp_min:
    case Op::foreach_rsqrt:
    case Op::foreach_reciprocal:
    case Op::foreach_copy:
    case Op::foreach_sign:
      return WorkKind::optimizer;
    default:
      return WorkKind::elementwise;
  }
}

/// Whose allocations are what it writes; of the others some are scratch memory.
constexpr bool is_told_by_allocation(WorkKind kind) {
  return kind == WorkKind::elementwise || kind == WorkKind::reduction || kind == WorkKind::copy ||
         kind == WorkKind::index || kind == WorkKind::sort;
}

constexpr bool is_factory(Op op) {
  return op == Op::zeros || op == Op::zeros_like || op == Op::ones_like || op == Op::arange || op == Op::fill ||
         op == Op::full_like || op == Op::randn || op == Op::eye || op == Op::bernoulli;
}

constexpr std::size_t kOps = 0
#define OOMETER_COUNT_OP(name) +1
    OOMETER_OPS(OOMETER_COUNT_OP)
#undef OOMETER_COUNT_OP
    ;
constexpr std::array<KernelHabits, kOps> kHabits = [] {
  std::array<KernelHabits, kOps> of_ops;
  for (std::size_t i = 0; i < kOps; ++i) {
    const auto op = static_cast<Op>(i);
    const WorkKind kind = kind_of(op);
    const bool told = is_told_by_allocation(kind);
    of_ops[i] = {kind, told, told && kind != WorkKind::index, is_factory(op)};
  }
  return of_ops;
}();

/// Of a matrix, or a batch of them: its leading dimension, as BLAS calls it.
bool has_odd_rows(const Tensor& matrix) {
  if (matrix.size(-1) == 1 || matrix.size(-2) == 1) return false;
  return std::max(matrix.strides()[-1], matrix.strides()[-2]) % 2 != 0;
}

}  // namespace

const KernelHabits* const kKernelHabits = kHabits.data();

std::int64_t read_of_inputs(Op op, const std::vector<Tensor>& inputs) {
  if (!habits(op).reads_inputs) return kNotTold;
  std::int64_t bytes = 0;
  for (const Tensor& input : inputs) bytes += touched(input);
  return bytes;
}

void reads(Op op, const Tensor& result, std::int64_t bytes) {
  std::vector<Work>& works = result.context().log.work.works;
  if (!works.empty() && works.back().op == static_cast<OpId>(op) && habits(op).is_told_by_allocation)
    works.back().read = bytes;
}

void reads(Op op, const Tensor& result, std::initializer_list<const Tensor*> tensors) {
  reads(op, result, touched(tensors));
}

void kernel(Op op, std::initializer_list<const Tensor*> read, const Tensor& written) {
  if (written.context().stopped) return;
  written.context().work({.op = static_cast<OpId>(op),
                          .kind = work_kind(op),
                          .dtype = written.dtype(),
                          .read = touched(read),
                          .written = touched(written)});
}

void collective(Context& context, Op op, std::int64_t bytes, DType dtype, std::int64_t ranks) {
  if (ranks <= 1 || bytes == 0) return;
  const std::int64_t share = bytes / ranks;
  context.work({.op = static_cast<OpId>(op),
                .kind = WorkKind::communication,
                .dtype = dtype,
                .read = op == Op::all_gather ? share : bytes,
                .written = op == Op::reduce_scatter ? share : bytes},
               {.n = ranks, .sent = bytes});
}

void gemm_kernel(Context& context, Op op, const Gemm& gemm) {
  if (context.stopped) return;
  const std::int64_t flops = checked_product(checked_product(checked_product(2 * gemm.batch, gemm.m), gemm.n), gemm.k);
  context.work({.op = static_cast<OpId>(op),
                .kind = WorkKind::gemm,
                .dtype = gemm.dtype,
                .read = gemm.read,
                .written = gemm.written},
               {.batch = gemm.batch,
                .m = gemm.m,
                .n = gemm.n,
                .k = gemm.k,
                .flops = flops,
                .counted = gemm.is_counted ? flops : 0,
                .odd_rows = gemm.odd_rows});
}

void gemm_kernel(Op op, const Tensor& a, const Tensor& b, const Tensor& result, const Tensor& bias) {
  gemm_kernel(result.context(), op,
              {a.ndim() == 3 ? a.size(0) : 1, a.size(-2), b.size(-1), a.size(-1), result.dtype(),
               touched({&a, &b, &bias}), touched(result), true,
               has_odd_rows(a) || has_odd_rows(b) ? OddRows::operands
               : has_odd_rows(result)             ? OddRows::result
                                                  : OddRows::none});
}

}  // namespace oometer
