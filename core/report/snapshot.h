#pragma once

#include <string>

#include "cuda/caching_allocator.h"
#include "trace/log.h"

namespace oometer {

/// A memory snapshot as torch.cuda.memory._dump_snapshot() of torch 2.15 writes it (torch/csrc/cuda/Module.cpp,
/// THCPModule_memorySnapshot), for PyTorch's memory viewer. Where PyTorch has Python's stack, each event has the
/// operator, the module it ran in, and the phase.
std::string memory_snapshot(const Log& log, const AllocatorOptions& options);

}  // namespace oometer
