#pragma once

#include <cstdint>

#include "rounding.h"
#include "tensor/context.h"
#include "tensor/tensor.h"

/// What the flash kernels of PyTorch and of the package flash-attn share: one is a copy of the other.
namespace oometer {

/// num_splits_heuristic, flash_api.cpp: into how many parts the keys are split so that a small batch fills the GPU.
/// query [b, heads, s, d], key [b, kv_heads, s, d].
std::int64_t flash_splits(const Device& device, const Tensor& query, const Tensor& key, double dropout);

constexpr std::int64_t rounded_head_dim(std::int64_t head_dim) { return round_up(head_dim, head_dim <= 128 ? 32 : 64); }

}  // namespace oometer
