#pragma once

#include "runtime/behaviours.h"

/// What versions do around the program that is executed: the order of a driver's addresses, the loading of weights.
/// Seen on real GPUs only (tests/measured/fitcheck.jsonl, a Tesla T4); recordings of PyTorch without one know nothing
/// of it.
namespace oometer {

struct MemoryBehaviours {
  /// Equally large free blocks are told apart by their address (<= 2.14, BlockComparatorSize of
  /// c10/cuda/CUDACachingAllocator.cpp), and a driver gives new segments lower ones; 2.15: by the segment's age.
  bool newest_of_equal_blocks = false;
  /// Weights in full precision that are there, while a quantised model loads, before their turn comes: transformers 5.0
  /// to 5.3 load by four threads that run ahead of the quantisation (core_model_loading.py, 5.4 and later load in step:
  /// has_on_the_fly_quantization). How far they get is a race; the number is fitted to the eleven QLoRA runs of 5.0,
  /// whose reserved bytes are off by up to 15 % with none and up to 4 % with these.
  int weights_loaded_ahead = 0;
};

inline MemoryBehaviours resolve_memory_behaviours(const Runtime& runtime) {
  MemoryBehaviours b;
  b.newest_of_equal_blocks = runtime.torch < Version{2, 15, 0};
  const bool by_threads = runtime.transformers >= Version{5, 0, 0} && runtime.transformers < Version{5, 4, 0};
  b.weights_loaded_ahead = by_threads ? 40 : 0;
  return b;
}

}  // namespace oometer
