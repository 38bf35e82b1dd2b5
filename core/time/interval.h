#pragma once

#include <string>

namespace oometer {

/// What the error of a time depends on. Shares are of the time.
struct TimeCircumstances {
  bool is_that_chip = true;    ///< kernels of this GPU were measured, not of another of its architecture
  bool products_known = true;  ///< of the chip, in the dtype of most products
  double unmeasured = 0;       ///< share of kernels without measured kin
  double kernel_seconds = 1;   ///< mean time of a kernel
  double over_pcie = 0;        ///< share, hidden or not, of collectives over PCIe
  bool generates = false;
};

/// Factors of a computed time, between which nine of ten measured ones lie.
struct TimeInterval {
  double low = 1, high = 1;
  std::string basis;
};

/// Where several circumstances widen it, the widest. docs/time.md has the runs behind each.
TimeInterval time_interval(const TimeCircumstances& its);

/// Which kernels no source measured, for people.
inline constexpr const char* kUnmeasuredKernels =
    "4-bit weights, grouped products, convolutions, fused losses, gathers, and attention kernels other than flash";

}  // namespace oometer
