#pragma once

#include <cstdint>

#include "runtime/behaviours.h"

/// Scratch memory that PyTorch takes for cuBLAS from its own allocator (ATen/cuda/CublasHandlePool.cpp).
namespace oometer {

/// Bytes of one cuBLAS workspace on a device of that compute capability.
std::int64_t cublas_workspace_bytes(const Behaviours& behaviours, int major, int minor);

/// Bytes that cuBLASLt (a linear layer's bias epilogue) has to itself, a call or a handle and stream, where it does not
/// share cuBLAS's: see Behaviours. CublasLtUtils.cpp, _getWorkspaceSize, CUBLASLT_WORKSPACE_SIZE unset.
inline constexpr std::int64_t kCublasLtWorkspace = 1 << 20;

}  // namespace oometer
