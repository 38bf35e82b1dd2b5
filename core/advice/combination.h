#pragma once

#include <vector>

#include "advice/advice.h"
#include "advice/selection.h"

namespace oometer {

/// What a combination may be paid with: prices, and those of which it has to have one.
struct Tier {
  std::vector<Price> allowed;
  std::vector<Price> has_one_of;  ///< empty: none. It is needed: the rest, with whatever costs nothing, is not enough
};

/// The cheapest selection of a tier that makes the job fit, and needs each of its changes for that; where none fits,
/// one that is tight; none where there is none, or more than a few hundred runs were needed to find it. Of each price,
/// the dearest first, the least is found with which the strongest of all cheaper changes are enough; that is exact
/// where of each choice a later change never needs more memory than one before it, which benchmarks/advice.cpp holds
/// against every selection that is cheaper.
std::optional<Selection> cheapest_selection(Selections& selections, const Tier& tier);

/// At most three ways to make a job fit that does not, the cheapest first: with the same training, hardware and
/// mathematics; with other numerics or another training; with other hardware. Only where none of these is enough, one
/// of everything.
std::vector<Combination> cheapest_combinations(Selections& selections);

}  // namespace oometer
