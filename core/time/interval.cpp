#include "time/interval.h"

#include <algorithm>

namespace oometer {

namespace {

constexpr double kManyUnmeasured = 0.1;  ///< of the time
constexpr double kSmallKernel = 60e-6;   ///< seconds; the host asks for one in 10 to 40 us
constexpr double kSlowPcie =
    23.0 / 5.0;  ///< NCCL's bus over PCIe of the better measured host (PRO 6000) and of the worse (L40S)

}  // namespace

TimeInterval time_interval(const TimeCircumstances& its) {
  // Runs on A100s and H100s were measured to take 0.86 to 1.28 times what is computed (docs/time.md).
  TimeInterval interval{0.83, 1.3, "runs on GPUs whose kernels were measured"};
  const auto widen = [&](double low, double high, const char* basis) {
    if (low >= interval.low && high <= interval.high) return;
    interval.low = std::min(interval.low, low);
    interval.high = std::max(interval.high, high);
    interval.basis = basis;
  };
  if (its.unmeasured > kManyUnmeasured) widen(0.75, 1.35, "runs with kernels that were not measured by themselves");
  if (its.kernel_seconds < kSmallKernel)
    widen(0.5, 1.6, "runs of small kernels, whose time depends on the host's processor");
  if (!its.is_that_chip)
    widen(0.6, 1.7, "two chips of one architecture: what they reach of their data sheets differs so much");
  if (!its.products_known) widen(0.6, 2.7, "all chips: what their products reach of the data sheet differs so much");
  if (its.generates) widen(0.5, 1.7, "no generation was measured: the widest of runs that were");
  if (its.over_pcie > 0) {
    interval.high += its.over_pcie * (kSlowPcie - 1);
    interval.basis += "; and what NCCL reached over PCIe on two hosts";
  }
  return interval;
}

}  // namespace oometer
