#pragma once

#include <cstdint>

#include "tensor/tensor.h"

/// The package mamba_ssm (2.3.2): the autograd Functions around its kernels.
namespace oometer {

/// What mamba_split_conv1d_scan_combined takes: zxbcdt [b, s, inner + channels + heads], conv1d_weight [channels,
/// width], A, D and dt_bias [heads], the norm's and the output projection's parameters; what may be null: conv1d_bias,
/// rmsnorm_weight, outproj_bias.
struct Mamba2Operands {
  Tensor zxbcdt, conv1d_weight, conv1d_bias, dt_bias, a, d, rmsnorm_weight, outproj_weight, outproj_bias;
  std::int64_t chunk_size, groups;  ///< tokens; of the heads
};

/// MambaSplitConv1dScanCombinedFn (mamba_ssm/ops/triton/ssd_combined.py): [b, s, hidden]. Of a mixer's activations its
/// input and the scan's result stay; all else is made again in backward.
Tensor mamba_split_conv1d_scan_combined(const Mamba2Operands& operands);

/// What a scan gives.
struct ChunkScan {
  Tensor output;       ///< [b, s, heads, d]
  Tensor final_state;  ///< [b, heads, d, state]
};
/// MambaChunkScanCombinedFn of x [b, s, heads, d] and B [b, s, groups, state], without a gradient.
ChunkScan mamba_chunk_scan_combined(const Tensor& x, const Tensor& b, std::int64_t chunk_size);

/// selective_state_update of x [b, heads, d], in whose place the state is written
/// (mamba_ssm/ops/triton/selective_state_update.py).
Tensor selective_state_update(const Tensor& state, const Tensor& x);

}  // namespace oometer
