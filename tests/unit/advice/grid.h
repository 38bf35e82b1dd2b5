#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "advice/combination.h"
#include "advice/selection.h"

/// What the advisor's search is held against: every selection of changes, one after another.
namespace oometer {

inline bool is_one_of(Price price, const std::vector<Price>& prices) {
  return std::find(prices.begin(), prices.end(), price) != prices.end();
}

/// Every selection of a tier, where `below` is given only those that cost less.
inline std::vector<Selection> every_selection(const Selections& selections, const Tier& tier,
                                              const std::optional<Cost>& below) {
  std::vector<Selection> all = {selections.nothing()};
  for (std::size_t choice = 0; choice < selections.choices().size(); ++choice) {
    const std::size_t before = all.size();
    for (std::size_t change = 0; change < selections.choices()[choice].changes.size(); ++change) {
      if (!is_one_of(selections.choices()[choice].changes[change].price, tier.allowed)) continue;
      for (std::size_t i = 0; i < before; ++i) {
        Selection more = all[i];
        more[choice] = static_cast<std::int8_t>(change);
        if (!below || selections.cost(more) < *below) all.push_back(std::move(more));
      }
    }
  }
  return all;
}

/// A selection without the changes that a tier must have, but with everything that costs nothing and goes with it.
inline Selection without_must(const Selections& selections, const Tier& tier, Selection selection) {
  for (std::size_t i = 0; i < selection.size(); ++i) {
    const std::vector<Change>& changes = selections.choices()[i].changes;
    if (selection[i] != kNotTaken && is_one_of(changes[static_cast<std::size_t>(selection[i])].price, tier.has_one_of))
      selection[i] = kNotTaken;
  }
  for (std::size_t i = 0; i < selection.size(); ++i) {
    const std::vector<Change>& changes = selections.choices()[i].changes;
    for (std::size_t change = changes.size(); change-- > 0 && selection[i] == kNotTaken;) {
      if (changes[change].price != Price::nothing) continue;
      selection[i] = static_cast<std::int8_t>(change);
      if (!selections.accepted(selection)) selection[i] = kNotTaken;
    }
  }
  return selection;
}

/// The cheapest of them that fits, has what the tier asks for and needs that, and does not fit without any of its
/// changes.
inline std::optional<Selection> cheapest_of_all(Selections& selections, const Tier& tier, bool tight,
                                                const std::optional<Cost>& below = std::nullopt) {
  std::optional<Selection> best;
  for (const Selection& selection : every_selection(selections, tier, below)) {
    if (best && !(selections.cost(selection) < selections.cost(*best))) continue;
    bool has_what_it_must = tier.has_one_of.empty();
    for (std::size_t i = 0; i < selection.size(); ++i)
      if (selection[i] != kNotTaken)
        has_what_it_must |=
            is_one_of(selections.choices()[i].changes[static_cast<std::size_t>(selection[i])].price, tier.has_one_of);
    if (!has_what_it_must || !selections.fits(selection, tight)) continue;
    bool needs_all = tier.has_one_of.empty() || !selections.fits(without_must(selections, tier, selection), tight);
    for (std::size_t i = 0; i < selection.size() && needs_all; ++i) {
      if (selection[i] == kNotTaken) continue;
      Selection less = selection;
      less[i] = kNotTaken;
      needs_all = !selections.fits(less, tight);
    }
    if (needs_all) best = selection;
  }
  return best;
}

}  // namespace oometer
