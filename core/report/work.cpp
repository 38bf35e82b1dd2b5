#include "report/work.h"

#include <algorithm>
#include <limits>

namespace oometer {

namespace {

/// a + b * times of counts that are not negative, at most the largest number there is.
void add_times(std::int64_t& a, std::int64_t b, std::int64_t times) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if ((b >> 46 | times >> 14 | a >> 61) == 0) {  // nearly always: neither product nor sum reaches 2^62
    a += b * times;
    return;
  }
  const double sum = static_cast<double>(a) + static_cast<double>(b) * static_cast<double>(times);
  a = sum < 9.2e18 ? a + b * times : kMost;
}

}  // namespace

void WorkSum::add(const WorkLog& log, const Work& work, std::int64_t times) {
  kernels += times;
  if (((work.read | work.written) >> 46 | times >> 14 | (read | written) >> 61) == 0) {  // as in add_times
    read += work.read * times;
    written += work.written * times;
  } else {
    add_times(read, work.read, times);
    add_times(written, work.written, times);
  }
  if (work.product == 0) return;  // most
  const WorkProduct& product = log.product(work);
  add_times(executed, product.counted, times);
  add_times(hardware, product.flops, times);
  if (!work.recomputed) add_times(model, product.flops, times);
  add_times(sent, product.sent, times);
}

WorkSum& WorkSum::operator+=(const WorkSum& other) {
  kernels += other.kernels;
  add_times(executed, other.executed, 1);
  add_times(hardware, other.hardware, 1);
  add_times(model, other.model, 1);
  add_times(read, other.read, 1);
  add_times(written, other.written, 1);
  add_times(sent, other.sent, 1);
  return *this;
}

WorkTotals work_of(const Log& log, int iteration) {
  const auto is_of = [&](const PhaseMark& phase) { return phase.iteration == iteration; };
  const auto first = std::find_if(log.phases.begin(), log.phases.end(), is_of);
  const auto next = std::find_if_not(first, log.phases.end(), is_of);
  WorkTotals totals;
  totals.by_op.resize(log.ops.size());
  std::vector<WorkKind> kinds(log.ops.size(), WorkKind::none);  // an operator's works are all of one
  if (first == log.phases.end()) return totals;
  const std::vector<std::int64_t> times =
      log.work.times({first->work, next == log.phases.end() ? log.work.mark() : next->work});
  for (std::size_t i = 0; i < times.size(); ++i) {
    if (times[i] == 0) continue;
    const Work& work = log.work.works[i];
    totals.by_op[work.op].add(log.work, work, times[i]);
    kinds[work.op] = work.kind;
  }
  for (std::size_t op = 0; op < kinds.size(); ++op)
    if (totals.by_op[op].kernels > 0) totals.by_kind[static_cast<std::size_t>(kinds[op])] += totals.by_op[op];
  for (const WorkSum& sum : totals.by_kind) totals.all += sum;
  return totals;
}

const char* work_kind_name(WorkKind kind) {
  constexpr std::array<const char*, kWorkKinds> kNames{"none",        "gemm",      "attention",    "convolution",
                                                       "elementwise", "reduction", "copy",         "index",
                                                       "sort",        "optimizer", "communication"};
  return kNames[static_cast<std::size_t>(kind)];
}

std::string flop_counter_name(const Log& log, OpId op) {
  const std::string name = log.ops[op];
  const std::size_t attention = name.find("_attention");
  return "aten." + (attention == std::string::npos ? name : "_scaled_dot_product_" + name);
}

}  // namespace oometer
