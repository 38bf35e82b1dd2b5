#pragma once

#include <cstdint>
#include <vector>

namespace oometer {

/// How a router spreads the tokens of a forward over the experts of a layer (a job's `data.routing`).
struct ExpertLoad {
  bool is_worst = false;               ///< every token goes to the same experts
  std::vector<std::int64_t> counts{};  ///< tokens of each expert; empty: as evenly as can be, or the worst
  bool operator==(const ExpertLoad&) const = default;
};

}  // namespace oometer
