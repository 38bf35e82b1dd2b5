#include "cuda/cublas.h"

namespace oometer {

std::int64_t cublas_workspace_bytes(const Behaviours& behaviours, int major, int minor) {
  // getChosenWorkspaceSize / parseChosenWorkspaceSize: 4096 KiB x 2 + 16 KiB x 8, or 32 MiB on large GPUs.
  constexpr std::int64_t kKiB = 1024, kDefault = (2 * 4096 + 8 * 16) * kKiB, kLarge = 32 * kKiB * kKiB;
  const bool large =
      behaviours.cublas_large_workspace_on_blackwell ? major >= 9 && major <= 12 : major == 9 && minor == 0;
  return large ? kLarge : kDefault;
}

}  // namespace oometer
