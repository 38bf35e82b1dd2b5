#pragma once

#include <algorithm>
#include <string>

#include "report/work.h"
#include "trace/log.h"

namespace oometer {

inline bool same(const Event& a, const Event& b) {
  return a.storage == b.storage && a.module == b.module && a.op == b.op && a.kind == b.kind && a.stream == b.stream;
}

inline bool same(const PhaseMark& a, const PhaseMark& b) {
  return a.first_event == b.first_event && a.name == b.name && a.iteration == b.iteration;
}

inline bool same(const Log& log_a, const StorageRecord& a, const Log& log_b, const StorageRecord& b) {
  return a.bytes == b.bytes && a.alloc_event == b.alloc_event && a.free_event == b.free_event && a.module == b.module &&
         a.dtype == b.dtype && a.role == b.role && (a.saved == b.saved || a.role == Role::parameter) &&
         a.recomputed == b.recomputed &&
         std::equal(log_a.dims.begin() + a.shape, log_a.dims.begin() + a.shape + a.ndim, log_b.dims.begin() + b.shape,
                    log_b.dims.begin() + b.shape + b.ndim);
}

inline bool same(const Share& a, const Share& b) {
  return a.storage == b.storage && a.module == b.module && a.elements == b.elements;
}

inline bool same(const WorkSum& a, const WorkSum& b) {
  return a.kernels == b.kernels && a.executed == b.executed && a.hardware == b.hardware && a.model == b.model &&
         a.read == b.read && a.written == b.written && a.sent == b.sent;
}

/// The first event or storage that differs, or what an operator computed and moved in an iteration, in words; "" where
/// nothing does.
inline std::string difference(const Log& a, const Log& b) {
  if (a.events.size() != b.events.size() || a.storages.size() != b.storages.size() ||
      a.phases.size() != b.phases.size() || a.shares.size() != b.shares.size())
    return "sizes";
  for (std::size_t i = 0; i < a.events.size(); ++i)
    if (!same(a.events[i], b.events[i])) return "event " + std::to_string(i);
  for (std::size_t i = 0; i < a.storages.size(); ++i)
    if (!same(a, a.storages[i], b, b.storages[i])) return "storage " + std::to_string(i);
  for (std::size_t i = 0; i < a.phases.size(); ++i)
    if (!same(a.phases[i], b.phases[i])) return "phase " + std::to_string(i);
  for (std::size_t i = 0; i < a.shares.size(); ++i)
    if (!same(a.shares[i], b.shares[i])) return "share " + std::to_string(i);
  for (const int iteration : {0, 1, 2}) {
    const WorkTotals of_a = work_of(a, iteration), of_b = work_of(b, iteration);
    for (OpId op = 0; op < a.ops.size(); ++op)
      if (!same(of_a.by_op[op], of_b.by_op[op]))
        return std::string("work of ") + a.ops[op] + " in iteration " + std::to_string(iteration);
  }
  return "";
}

}  // namespace oometer
