#pragma once

#include <cstdint>

namespace oometer {

/// The operators, by PyTorch's names: one line each. The name is what the log, the report and the trace diff show.
// clang-format off
#define OOMETER_OPS(X)                                                                                             \
  X(none) X(empty) X(zeros) X(ones_like) X(arange) X(fill) X(to_copy) X(clone) X(copy) X(add) X(sub) X(mul) X(div) \
  X(neg) X(exp) X(pow) X(rsqrt) X(sqrt) X(reciprocal) X(cos) X(sin) X(sum) X(mean) X(cat) X(stack) X(slice_backward)        \
  X(select_backward) X(mm) X(addmm) X(bmm) X(cublas_workspace) X(silu) X(silu_backward) X(gelu) X(gelu_backward)    \
  X(sigmoid) X(sigmoid_backward) X(tanh) X(tanh_backward) X(relu) X(threshold_backward) X(softmax)                 \
  X(softmax_backward) X(log_softmax) X(log_softmax_backward) X(nll_loss_forward) X(nll_loss_backward)              \
  X(native_layer_norm) X(native_layer_norm_backward) X(embedding) X(embedding_dense_backward) X(convolution)       \
  X(convolution_backward) X(constant_pad_nd) X(eq) X(ne) X(argmax) X(index) X(index_put) X(masked_fill)            \
  X(masked_scatter) X(masked_select) X(nonzero) X(cumsum) X(where) X(triu) X(native_dropout)                       \
  X(native_dropout_backward) X(flash_attention) X(flash_attention_backward) X(efficient_attention)                 \
  X(efficient_attention_backward) X(cudnn_attention) X(cudnn_attention_backward) X(accumulate_grad)                \
  X(foreach_sqrt) X(foreach_norm) X(foreach_add) X(foreach_mul) X(foreach_lerp) X(foreach_addcdiv) X(zeros_like)   \
  X(fused_adam) X(parameter) X(buffer) X(input) X(flatten) X(bucket) X(narrow) X(linalg_vector_norm) X(is_finite)  \
  X(item) X(bernoulli) X(maximum) X(clamp) X(ge) X(le) X(lt) X(gt) X(max) X(bitwise_and) X(logical_not) X(all) X(abs)  \
  X(scale) X(split) X(eye) X(liger_rms_norm) X(liger_rope) X(liger_silu_mul) X(liger_cross_entropy) X(liger_layer_norm) X(liger_fused_moe) X(liger_relu_squared) \
  X(liger_fused_linear_cross_entropy) X(matmul_4bit) X(dequantize) X(any) X(isin) X(bitwise_or) X(bitwise_not) X(index_copy) \
  X(batch_norm) X(batch_norm_backward) X(native_group_norm) X(native_group_norm_backward) X(max_pool2d)                \
  X(max_pool2d_backward) X(avg_pool2d) X(avg_pool2d_backward) X(adaptive_avg_pool2d) X(adaptive_avg_pool2d_backward)   \
  X(hardtanh) X(hardtanh_backward) X(hardswish) X(hardswish_backward) X(hardsigmoid) X(hardsigmoid_backward)           \
  X(leaky_relu) X(leaky_relu_backward) X(elu) X(elu_backward) X(softplus) X(softplus_backward) X(log)                  \
  X(roll) X(flip) X(repeat) X(upsample) X(upsample_backward) X(topk) X(gather) X(sort) X(histc) X(floor_divide)         \
  X(grouped_mm) X(polar) X(im2col) X(col2im) X(fused_rms_norm) X(fused_rms_norm_backward) X(var) X(std) X(minimum)          \
  X(index_select) X(one_hot) X(all_reduce) X(all_gather) X(reduce_scatter) X(broadcast) X(flash_attn)        \
  X(flash_attn_backward) X(solve_triangular) X(chunked_log_probs) X(log_sigmoid) X(log_sigmoid_backward) X(lerp) X(addcmul) X(addcdiv) X(sign) X(full_like) X(fused_sgd)             \
  X(fused_adagrad) X(foreach_sub) X(foreach_div) X(foreach_addcmul) X(foreach_abs) X(foreach_maximum)                  \
  X(foreach_clamp_min) X(foreach_rsqrt) X(foreach_reciprocal) X(randn) X(foreach_copy) X(foreach_sign) X(floor) X(expm1) X(baddbmm) \
  X(cut_cross_entropy) X(lora_qkv) X(lora_o) X(lora_mlp) X(causal_conv1d) X(chunk_gated_delta_rule) X(chunk_kda) X(mamba_chunk_scan) X(selective_scan)
// clang-format on

enum class Op : std::uint16_t {
#define OOMETER_OP_ENUM(name) name,
  OOMETER_OPS(OOMETER_OP_ENUM)
#undef OOMETER_OP_ENUM
};

}  // namespace oometer
