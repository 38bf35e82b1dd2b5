#pragma once

#include <cstdint>

/// Written by tools/calibrate.py from tests/measured/fitcheck.jsonl (runs on a Tesla T4): how far reserved bytes
/// lie from the simulated ones. The largest error of n runs: a new one of the same kind lies inside with a
/// probability of n / (n + 1).
namespace oometer {

struct ReservedSpread {
  int runs = 0;                 ///< real runs behind it
  std::int64_t either_way = 0;  ///< of the simulated bytes, in ten-thousandths
};

/// 20 runs. Left out one by one 19 lie inside, model by model 18.
inline constexpr ReservedSpread kSpreadOneGpu{20, 175};
/// 27 runs. Left out one by one 26 lie inside, model by model 25.
inline constexpr ReservedSpread kSpreadOneGpu4Bit{27, 586};

}  // namespace oometer
