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
};

struct AttentionOutputs {
  Tensor output;   ///< [b, s, heads, d]
  Tensor weights;  ///< eager only: [b, heads, s, s]
};

/// query [b, heads, s, d], key and value [b, kv_heads, s, d]; mask [.., s, s] or null.
AttentionOutputs attention_forward(const AttentionCall& call, const Tensor& query, const Tensor& key,
                                   const Tensor& value, const Tensor& mask);

}  // namespace oometer
