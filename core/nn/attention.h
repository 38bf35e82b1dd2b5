#pragma once

#include "nn/module.h"
#include "nn/rows.h"
#include "ops/ops.h"
#include "tensor/tensor.h"

/// transformers' attention interface (ALL_ATTENTION_FUNCTIONS, 5.23): what a model's attention layers call.
namespace oometer {

/// `sdpa` leaves the choice of kernel to PyTorch; the others force one.
enum class AttentionKind : std::uint8_t {
  eager,
  sdpa,
  sdpa_flash,
  sdpa_efficient,
  sdpa_math,
  sdpa_cudnn,
  flash_attention_2,  ///< the package flash-attn, or its build on the hub (kernels-community/flash-attn2)
  flash_attention_3   ///< the same of flash-attn's folder hopper
};

/// transformers' is_flash_attention_requested: padding is taken out, no mask of pairs is made.
constexpr bool is_flash_attention(AttentionKind kind) {
  return kind == AttentionKind::flash_attention_2 || kind == AttentionKind::flash_attention_3;
}

struct AttentionCall {
  AttentionKind kind = AttentionKind::sdpa;
  bool causal = false;
  double dropout = 0;
  bool softcaps = false;   ///< tanh of the weights before the mask (Gemma2's eager_attention_forward)
  bool own_class = false;  ///< not the shared function: a class of the model's own, which leaves operands as they are
};

struct AttentionOutputs {
  Tensor output;   ///< [b, s, heads, d]
  Tensor weights;  ///< eager only: [b, heads, s, s]
};

/// What a layer's attention works on: query [b, heads, s, d], key and value [b, kv_heads, s, d].
struct AttentionInputs {
  Tensor query, key, value;
};

/// `projected.view(b, s, -1, head_dim).transpose(1, 2)`.
Tensor heads_of(const Tensor& projected, std::int64_t head_dim);

/// q_proj(x), k_proj(x) and v_proj(x) where what is around them computes them in one (LinearWrapper::project); else
/// nothing.
AttentionInputs project_together(const Tensor& x, const Linear& q_proj, const Linear& k_proj, const Linear& v_proj);

/// The heads of q_proj(x), k_proj(x) and v_proj(x). `projects_first`: all three are projected before the heads of any
/// are taken; backward takes them in another order then.
AttentionInputs project(const Tensor& x, const Linear& q_proj, const Linear& k_proj, const Linear& v_proj,
                        std::int64_t head_dim, bool projects_first);

/// repeat_kv (modeling_llama.py): keys or values repeated for each query head they serve; themselves where that is one.
Tensor repeat_kv(const Tensor& x, std::int64_t heads);

/// What sdp::select_backend chooses (sdp_utils.cpp, 2.15; default order flash, efficient, math, cuDNN last unless
/// preferred). `enable_gqa`: where there are fewer heads of keys; without it they are spread like any operand.
AttentionKernel choose_kernel(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& value,
                              const Tensor& mask, bool enable_gqa = true);

/// What flash attention reads of a batch to find its sequences.
struct Sequences {
  Tensor position_ids{};       ///< null: not passed
  const Rows* rows = nullptr;  ///< null: each row is one document that fills it
  Tensor cu_seq_lens{};        ///< where each begins; null: not passed
};

/// query [b, heads, s, d], key and value [b, kv_heads, s, d]; mask [.., s, s] or null, of flash attention [b, s].
AttentionOutputs attention_forward(const AttentionCall& call, const Tensor& query, const Tensor& key,
                                   const Tensor& value, const Tensor& mask, const Sequences& sequences = {});

}  // namespace oometer
