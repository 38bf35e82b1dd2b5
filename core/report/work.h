#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/log.h"

namespace oometer {

/// What some kernels compute and move.
struct WorkSum {
  void add(const WorkLog& log, const Work& work, std::int64_t times);
  WorkSum& operator+=(const WorkSum& other);

  std::int64_t kernels = 0;
  std::int64_t executed = 0;  ///< FLOPs as torch.utils.flop_counter.FlopCounterMode counts them
  std::int64_t hardware = 0;  ///< FLOPs of all matrix products on the device, causal attention's masked half left out
  std::int64_t model = 0;     ///< of these, without what checkpointing computes again
  std::int64_t read = 0, written = 0, sent = 0;  ///< bytes
};

/// The work of one iteration (of inference: of one turn).
struct WorkTotals {
  WorkSum all;
  std::array<WorkSum, kWorkKinds> by_kind;  ///< by WorkKind
  std::vector<WorkSum> by_op;               ///< by OpId
};

WorkTotals work_of(const Log& log, int iteration);

const char* work_kind_name(WorkKind kind);
/// FlopCounterMode's name of an operator that it counts ("aten.mm").
std::string flop_counter_name(const Log& log, OpId op);

}  // namespace oometer
