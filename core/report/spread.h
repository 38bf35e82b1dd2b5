#pragma once

#include <cstdint>

/// Written by tools/calibrate.py: how far measured reserved bytes lie from the simulated ones. Of
/// tests/measured/fitcheck.jsonl (a Tesla T4) the largest error of n runs: a new one of the same kind lies inside with
/// a probability of n / (n + 1). Of tests/measured/gpumemnet.json (image models on an A100 40 GB) the quantiles between
/// which 95 % lie.
namespace oometer {

struct ReservedSpread {
  int runs = 0;            ///< real runs behind it
  std::int64_t below = 0;  ///< of the simulated bytes, in ten-thousandths
  std::int64_t above = 0;
};

/// 20 runs. Left out one by one 19 lie inside, model by model 18.
inline constexpr ReservedSpread kSpreadOneGpu{20, 175, 175};
/// 27 runs. Left out one by one 26 lie inside, model by model 25.
inline constexpr ReservedSpread kSpreadOneGpu4Bit{27, 586, 586};
/// 2398 runs. Architecture by architecture 95.2% lie inside what the others' make.
inline constexpr ReservedSpread kSpreadConvolutions{2398, 957, 5877};

}  // namespace oometer
