#pragma once

#include "ops/ops.h"
#include "tensor/tensor.h"
#include "train/config.h"

/// transformers' attention interface (ALL_ATTENTION_FUNCTIONS, 5.23): what a model's attention layers call.
namespace oometer {

struct AttentionCall {
  AttentionKind kind = AttentionKind::sdpa;
  bool causal = false;
  double dropout = 0;
  bool own_class = false;  ///< not the shared function: a class of the model's own, which leaves operands as they are
};

struct AttentionOutputs {
  Tensor output;   ///< [b, s, heads, d]
  Tensor weights;  ///< eager only: [b, heads, s, s]
};

/// repeat_kv (modeling_llama.py): keys or values repeated for each query head they serve; themselves where that is one.
Tensor repeat_kv(const Tensor& x, std::int64_t heads);

/// What sdp::select_backend chooses (sdp_utils.cpp, 2.15; default order flash, efficient, math, cuDNN last unless
/// preferred).
AttentionKernel choose_kernel(const AttentionCall& call, const Tensor& query, const Tensor& key, const Tensor& mask);

/// query [b, heads, s, d], key and value [b, kv_heads, s, d]; mask [.., s, s] or null.
AttentionOutputs attention_forward(const AttentionCall& call, const Tensor& query, const Tensor& key,
                                   const Tensor& value, const Tensor& mask);

}  // namespace oometer
