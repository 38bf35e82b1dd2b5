#pragma once

#include <utility>

#include "tensor/tensor.h"

/// liger-kernel 0.8.5's autograd Functions (liger_kernel/ops): what is around their Triton kernels, which allocate
/// nothing themselves. Several write their gradient over what they saved, or over the gradient that came in.
namespace oometer {

/// Kernels of liger-kernel 0.8.5 in place of transformers' modules and loss: what `apply_liger_kernel_to_llama` (and
/// its kin) are told. All off: no Liger.
struct LigerConfig {
  bool rope = false, rms_norm = false;
  bool swiglu = false;                      ///< of the MLP; `geglu` for Gemma, `relu_squared` for Nemotron
  bool layer_norm = false;                  ///< of towers, where the function knows it
  bool cross_entropy = false;               ///< F.cross_entropy alone
  bool fused_linear_cross_entropy = false;  ///< the head and the loss, by chunks of tokens
  bool accumulates_in_fp32 = false;         ///< of the latter: accum_dtype=torch.float32
  std::int64_t chunk_mem_const = 1;         ///< of the latter: bytes of a chunk's logits by those of the hidden states

  /// The defaults of apply_liger_kernel_to_llama.
  static constexpr LigerConfig usual() {
    return {.rope = true, .rms_norm = true, .swiglu = true, .fused_linear_cross_entropy = true};
  }
  bool operator==(const LigerConfig&) const = default;
};

/// LigerRMSNormFunction, casting_mode "llama" or "gemma": rms_norm.py. `in_place`: the input's gradient is written over
/// the output's.
Tensor liger_rms_norm(const Tensor& x, const Tensor& weight, bool in_place = true);
/// LigerLayerNormFunction: layer_norm.py.
Tensor liger_layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias);
/// LigerRopeFunction: rope.py. query, key [b, heads, s, d] are turned in place where their memory is [b, s, heads, d].
std::pair<Tensor, Tensor> liger_rotary_pos_emb(const Tensor& query, const Tensor& key, const Tensor& cos,
                                               const Tensor& sin);
/// LigerSiLUMulFunction: swiglu.py. silu(a) * b. LigerGELUMulFunction (geglu.py) is the same around another kernel.
/// `scales`: the product, by a down_multiplier.
Tensor liger_silu_mul(const Tensor& a, const Tensor& b, bool scales = false);
/// LigerReLUSquaredFunction: relu_squared.py.
Tensor liger_relu_squared(const Tensor& x);
/// LigerCrossEntropyFunction, mean: cross_entropy.py. logits [n, classes], target [n].
Tensor liger_cross_entropy(const Tensor& logits, const Tensor& target);
/// LigerFusedLinearCrossEntropyFunction, mean: fused_linear_cross_entropy.py. input [n, h], weight [classes, h]. The
/// gradients are made in forward, chunk by chunk of the tokens, as `kernels` says.
Tensor liger_fused_linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& target,
                                        const LigerConfig& kernels);
/// LigerFusedMoEFunction: fused_moe.py. x [tokens, hidden], top_k_index [tokens, k] in int32. Its lists of tiles are as
/// long as the routing makes them: here tokens are spread evenly.
Tensor liger_fused_moe(const Tensor& x, const Tensor& gate_up_proj, const Tensor& down_proj, const Tensor& top_k_index,
                       const Tensor& top_k_weights);

}  // namespace oometer
