#include "time/kernel_time.h"

#include <algorithm>
#include <cmath>

#include "tensor/op.h"

namespace oometer {

namespace {

constexpr double kMicro = 1e-6, kGiga = 1e9, kTera = 1e12;
constexpr double kLaunch = 3 * kMicro;  ///< of a kernel alone: LAUNCH in tools/fit_time.py

/// FlashAttention-2, torch's and flash-attn's, does not use what Hopper and Blackwell have for it: 35 % of an H100's
/// 989.4 TFLOP/s (FlashAttention-3, arXiv 2407.08608, abstract). What was measured on them is FlashAttention-3.
constexpr double kFlashAttention2 = 0.35 * 989.4 * kTera;

/// Memory-efficient attention is CUTLASS's of 2022, for Ampere (fmha_cutlassF_..._sm80). What it computes in a second
/// on an H100 and an H200 with heads of up to 64 and of more: 47 TFLOP/s in forward and 59 in backward with T5's bias
/// and dropout (tests/measured/time/profiles.jsonl); and 113 where four Vicuna layers have 17 ms for it on an H100
/// (h100.jsonl, vicuna-4-layers-sdpa-efficient).
constexpr double kEfficientAttention64 = 55 * kTera, kEfficientAttention128 = 113 * kTera;

bool is_efficient_attention(Op op) { return op == Op::efficient_attention || op == Op::efficient_attention_backward; }

bool is_flash_attention_2(Op op) {
  return op == Op::flash_attention || op == Op::flash_attention_backward || op == Op::flash_attn ||
         op == Op::flash_attn_backward;
}

/// At most: fused AdamW takes 5.44 and 5.52 ps for an element of 14 bytes with dense models on an H200, whose
/// vectorized kernels move 4.3 TB/s (tests/measured/time/profiles.jsonl). multi_tensor_apply's launches are of 320
/// chunks of 65,536 elements. Where gradients are zero they take longer: docs/time.md.
constexpr double kMultiTensor = 2560 * kGiga;

/// index_put_ with accumulation adds the rows of one index one after another, in a warp for 128 columns
/// (indexing_backward_kernel, ATen/native/cuda/Indexing.cu). GPT-OSS's gradients of experts' biases, in which 4,096
/// rows went to each of four experts, took 4.2 ms each on an H200 (the same profiles): so long is a row.
constexpr double kAccumulatedRow = 1.03 * kMicro;

/// What products of 16 bits compute in a second on an H100 and an H200 where rows are an odd number of elements apart:
/// cuBLAS takes cutlass_75_tensorop_bf16_s1688gemm_..._align1. The heads of Hunyuan-A13B, BART and MPNet, with 128,167,
/// 50,265 and 30,527 words, reached 92 to 100 TFLOP/s where the logits are written and 140 to 149 where their gradient
/// is read, on an H200 (tests/measured/time/profiles.jsonl).
constexpr double kOddResult = 96 * kTera, kOddOperands = 145 * kTera;

/// scatter_add_, gather's backward, adds one element after the other by atomics. DeBERTa's 24 of a step have 50 million
/// each, of which many meet in one place; the kernels that are not among the 40 listed of it took 22 ms more than
/// what else is there (the same profiles).
constexpr double kScatteredElement = 18.6e-12;

/// Kernels of libraries whose times nobody among our sources measured.
bool is_of_library(Op op) {
  return op == Op::matmul_4bit || op == Op::dequantize || op == Op::grouped_mm || op == Op::chunked_log_probs ||
         op == Op::liger_cross_entropy || op == Op::liger_fused_linear_cross_entropy || op == Op::cut_cross_entropy;
}

/// Where as many go to each place.
double rows_of_one_index(const Work& work) {
  return static_cast<double>(work.read) / static_cast<double>(std::max<std::int64_t>(1, work.written));
}

/// A kernel whose operands all have the result's layout is vectorized, one that broadcasts or widens is not
/// (ATen/native/cuda/CUDALoops.cuh). Of strides only the operator tells: copies but for casts, and the halves that a
/// rotary embedding negates.
bool is_vectorized(const Work& work) {
  const auto op = static_cast<Op>(work.op);
  if (op == Op::to_copy) return work.read >= work.written;
  if (work.kind == WorkKind::copy || op == Op::neg) return false;
  return work.written == 0 || work.read % work.written == 0;
}

double bytes_of(const Work& work) { return static_cast<double>(work.read) + static_cast<double>(work.written); }

}  // namespace

KernelTimes::KernelTimes(const GpuSpeed& gpu) : gpu_(gpu), rates_(rates_of(gpu)) {}

KernelTime KernelTimes::of(const WorkLog& log, const Work& work) const {
  const Op op = static_cast<Op>(work.op);
  KernelTime time;
  switch (work.kind) {
    case WorkKind::none:
      return time;
    case WorkKind::gemm:
    case WorkKind::convolution:
      time = product(log.product(work), work);
      break;
    case WorkKind::attention:
      time = attention(log.product(work), work);
      break;
    case WorkKind::communication:
      return collective(log.product(work), work);
    case WorkKind::reduction:
      time = streamed(work, rates_.rates.reduction, rates_.is_known.reduction);
      break;
    case WorkKind::index:
    case WorkKind::sort:
      time = streamed(work, rates_.rates.reduction, false);
      if (op == Op::gather && work.product != 0)
        time.seconds = std::max(time.seconds, kLaunch + static_cast<double>(log.product(work).n) * kScatteredElement);
      if (op == Op::index_put)
        time.seconds = std::max(time.seconds, kLaunch + rows_of_one_index(work) * kAccumulatedRow);
      break;
    case WorkKind::optimizer:
      time = streamed(work, std::min(rates_.rates.elementwise, of_bandwidth(kMultiTensor)), true);
      break;
    case WorkKind::elementwise:
    case WorkKind::copy:
      time = streamed(work, rates_.rates.elementwise, true);
      if (rates_.rates.strided > 0 && !is_vectorized(work))
        time = streamed(work, of_bandwidth(rates_.rates.strided * kGiga), true);
      break;
  }
  if (is_of_library(op)) time.is_measured = false;
  return time;
}

double KernelTimes::of_bandwidth(double bytes_a_second) const { return bytes_a_second / (gpu_.memory * kGiga); }

KernelTime KernelTimes::streamed(const Work& work, double of_bandwidth, bool is_measured) const {
  return {kLaunch + bytes_of(work) / (gpu_.memory * kGiga * of_bandwidth), is_measured};
}

KernelTime KernelTimes::product(const WorkProduct& product, const Work& work) const {
  // torch.backends.cudnn.allow_tf32 is true, torch.backends.cuda.matmul.allow_tf32 is not.
  const bool convolves = work.kind == WorkKind::convolution, half = is_half(work.dtype);
  const double peak = peak_flops(gpu_, work.dtype, convolves);
  if (product.flops == 0 || peak == 0) return streamed(work, rates_.rates.elementwise, product.flops == 0);
  const ProductRate& rate = half || (convolves && gpu_.tf32 > 0) ? rates_.rates.half : rates_.rates.single;
  // Nobody measured other chips'; H100s' and H200s' multiprocessors are the same.
  const bool odd = half && product.odd_rows != OddRows::none, hopper = rates_.rates.strided > 0;
  double reached = peak * rate.flops;
  if (odd && hopper) reached = product.odd_rows == OddRows::result ? kOddResult : kOddOperands;
  const double computes = static_cast<double>(product.flops) / reached,
               moves = bytes_of(work) / (gpu_.memory * kGiga * rate.bytes);
  return {rate.launch_us * kMicro + std::sqrt(computes * computes + moves * moves),
          !convolves && gpu_.is_that_chip && (half ? rates_.is_known.half : rates_.is_known.single) && (!odd || hopper),
          computes > moves};
}

KernelTime KernelTimes::attention(const WorkProduct& product, const Work& work) const {
  const bool half = is_half(work.dtype);
  const double peak = peak_flops(gpu_, work.dtype);
  if (product.flops == 0 || peak == 0) return streamed(work, rates_.rates.elementwise, false);
  AttentionRate rate = product.k <= 64 ? rates_.rates.attention_64 : rates_.rates.attention_128;
  double reached = peak * rate.flops;
  const bool flash = is_flash_attention_2(static_cast<Op>(work.op));
  if (flash && reached > kFlashAttention2) reached = kFlashAttention2;
  if (half && rates_.rates.strided > 0 && is_efficient_attention(static_cast<Op>(work.op))) {
    reached = std::min(reached, product.k <= 64 ? kEfficientAttention64 : kEfficientAttention128);
    rate.tokens = 0;  // within these
  }
  // What a row of queries costs beside its keys is as much as so many keys. Of causal attention, which was measured, a
  // row has half of them; of full attention all.
  const bool causal = product.flops < product.counted;
  const double keys = static_cast<double>(product.n) * (causal ? 1 : 2) + 1;
  const double computes = static_cast<double>(product.flops) / reached * (1 + rate.tokens / keys),
               moves = bytes_of(work) / (gpu_.memory * kGiga * rates_.rates.elementwise);
  return {rate.launch_us * kMicro + std::max(computes, moves),
          half && flash && gpu_.is_that_chip && rates_.is_known.attention, computes > moves};
}

KernelTime KernelTimes::collective(const WorkProduct& product, const Work& work) const {
  const bool reduces = static_cast<Op>(work.op) == Op::all_reduce;
  const Collective rate = collective_rate(gpu_.fabric, reduces, product.n);
  const auto ranks = static_cast<double>(product.n);
  // A ring's: (n - 1) / n of the message over each link, all_reduce's twice.
  const double over_links = static_cast<double>(product.sent) * (ranks - 1) / ranks * (reduces ? 2 : 1);
  return {rate.launch_us * kMicro + over_links / (gpu_.link * kGiga * rate.link), gpu_.is_that_chip};
}

}  // namespace oometer
