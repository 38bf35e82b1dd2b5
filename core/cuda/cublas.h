#pragma once

#include <cstdint>

#include "runtime/behaviours.h"

/// Scratch memory that PyTorch takes for cuBLAS from its own allocator (ATen/cuda/CublasHandlePool.cpp).
namespace oometer {

/// Bytes of one cuBLAS workspace on a device of that compute capability.
std::int64_t cublas_workspace_bytes(const Behaviours& behaviours, int major, int minor);

/// Bytes that a cuBLASLt call (a linear layer's bias epilogue) allocates for itself; 0 where it shares cuBLAS's.
std::int64_t cublaslt_workspace_bytes(const Behaviours& behaviours);

}  // namespace oometer
