#include "advice/combination.h"

#include <algorithm>
#include <utility>

#include "sort_by.h"

namespace oometer {

namespace {

bool has(const std::vector<Price>& prices, Price price) {
  return std::find(prices.begin(), prices.end(), price) != prices.end();
}

class Search {
 public:
  Search(Selections& selections, const Tier& tier, bool tight)
      : selections_(selections), tier_(tier), tight_(tight), last_run_(selections.runs() + kMostRuns) {}

  std::optional<Selection> run() {
    if (!could_fit(selections_.nothing(), kPrices)) return std::nullopt;
    return cheapest(kPrices, selections_.nothing());
  }

 private:
  bool fits(const Selection& selection) { return selections_.fits(selection, tight_); }
  bool is_ordered(std::size_t choice) const { return selections_.choices()[choice].is_ordered; }
  bool is_open(const Selection& selection, std::size_t choice) const {
    return selection[choice] == kNotTaken && is_ordered(choice);
  }
  std::size_t size() const { return selections_.choices().size(); }
  Price price_of(std::size_t choice, std::size_t change) const {
    return selections_.choices()[choice].changes[change].price;
  }
  bool allowed(std::size_t choice, std::size_t change, std::size_t below) const {
    const Price price = price_of(choice, change);
    return static_cast<std::size_t>(price) < below && has(tier_.allowed, price);
  }

  bool has_what_it_must(const Selection& selection) const {
    if (tier_.has_one_of.empty()) return true;
    for (std::size_t i = 0; i < size(); ++i)
      if (selection[i] != kNotTaken && has(tier_.has_one_of, price_of(i, static_cast<std::size_t>(selection[i]))))
        return true;
    return false;
  }

  /// The core accepts a change beside each of those that are taken.
  bool goes_with(std::size_t choice, std::size_t change, const Selection& taken) const {
    for (std::size_t i = 0; i < size(); ++i)
      if (taken[i] != kNotTaken && i != choice &&
          !selections_.go_together(i, taken[i], choice, static_cast<std::int8_t>(change)))
        return false;
    return true;
  }

  /// Adds to a selection the strongest change below a price of every ordered choice that it
  /// leaves open.
  Selection filled(const Selection& selection, std::size_t below) const {
    Selection full = selection;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!is_open(selection, i)) continue;
      const std::vector<Change>& changes = selections_.choices()[i].changes;
      for (std::size_t change = changes.size(); change-- > 0 && full[i] == kNotTaken;)
        if (allowed(i, change, below) && goes_with(i, change, full)) full[i] = static_cast<std::int8_t>(change);
    }
    return full;
  }

  /// The same where the core does not accept all of them together: one after another, as far as it does.
  Selection filled_as_accepted(const Selection& selection, std::size_t below) const {
    Selection full = selection;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!is_open(selection, i)) continue;
      const std::vector<Change>& changes = selections_.choices()[i].changes;
      for (std::size_t change = changes.size(); change-- > 0;) {
        if (!allowed(i, change, below)) continue;
        full[i] = static_cast<std::int8_t>(change);
        if (selections_.accepted(full)) break;
        full[i] = kNotTaken;
      }
    }
    return full;
  }

  bool known_not_to_fit(const Selection& selection) const {
    return std::any_of(do_not_fit_.begin(), do_not_fit_.end(), [&](const Selection& known) {
      for (std::size_t i = 0; i < size(); ++i)
        if (is_ordered(i) ? selection[i] > known[i] : selection[i] != known[i]) return false;
      return true;
    });
  }

  /// With the strongest of everything below a price, the job fits.
  bool could_fit(const Selection& selection, std::size_t below) {
    if (could_fit_ordered(selection, below)) return true;
    Selection other = selection;
    for (std::size_t i = 0; i < size(); ++i) {
      if (is_ordered(i) || selection[i] != kNotTaken) continue;
      for (std::size_t change = 0; change < selections_.choices()[i].changes.size(); ++change) {
        if (!allowed(i, change, below)) continue;
        other[i] = static_cast<std::int8_t>(change);
        if (could_fit_ordered(other, below)) return true;
      }
      other[i] = kNotTaken;
    }
    return false;
  }

  bool could_fit_ordered(const Selection& selection, std::size_t below) {
    Selection full = filled(selection, below);
    if (known_not_to_fit(full)) return false;
    if (!selections_.run(full)) full = filled_as_accepted(selection, below);
    if (fits(full)) return true;
    if (selections_.run(full)) learn(std::move(full), below);
    return false;
  }

  /// Makes a selection that does not fit as strong as changes of one price can without making it fit: whatever is
  /// weaker is then known not to fit either. Light changes first, of which the next candidates are made.
  void learn(Selection selection, std::size_t price) {
    if (price < kPrices && has(tier_.allowed, static_cast<Price>(price))) {
      std::vector<std::pair<std::size_t, std::int64_t>> open;
      for (std::size_t i = 0; i < size(); ++i)
        if (is_ordered(i)) open.emplace_back(i, stronger(selection, i, price).size());
      sort_by(open, [](const auto& choice) { return choice.second; });
      for (const auto& choice : open) strengthen(selection, choice.first, price);
    }
    do_not_fit_.push_back(std::move(selection));
  }

  /// Changes of a price beyond what a choice has.
  std::vector<std::int8_t> stronger(const Selection& selection, std::size_t choice, std::size_t price) const {
    std::vector<std::int8_t> out;
    for (std::size_t change = 0; change < selections_.choices()[choice].changes.size(); ++change)
      if (static_cast<std::size_t>(price_of(choice, change)) == price &&
          static_cast<int>(change) > static_cast<int>(selection[choice]))
        out.push_back(static_cast<std::int8_t>(change));
    return out;
  }

  /// Takes the strongest change of a choice with which a selection still does not fit, found by halving.
  void strengthen(Selection& selection, std::size_t choice, std::size_t price) {
    const std::vector<std::int8_t> changes = stronger(selection, choice, price);
    std::size_t too_weak = 0, enough = changes.size() + 1;  // places in the list, from 1
    for (std::size_t tried = changes.size(); too_weak + 1 < enough; tried = too_weak + (enough - too_weak) / 2) {
      Selection other = selection;
      other[choice] = changes[tried - 1];
      (known_not_to_fit(other) || (selections_.run(other) && !fits(other)) ? too_weak : enough) = tried;
    }
    if (too_weak > 0) selection[choice] = changes[too_weak - 1];
  }

  /// Every selection that adds changes of one price, the cheapest first.
  std::vector<Selection> options(Price price, const Selection& taken) const {
    std::vector<Selection> out = {taken};
    if (!has(tier_.allowed, price)) return out;
    for (std::size_t i = 0; i < size(); ++i) {
      if (taken[i] != kNotTaken) continue;
      const std::size_t before = out.size();
      for (std::size_t change = 0; change < selections_.choices()[i].changes.size(); ++change) {
        if (price_of(i, change) != price) continue;
        for (std::size_t k = 0; k < before; ++k) {
          if (!goes_with(i, change, out[k])) continue;
          out.push_back(out[k]);
          out.back()[i] = static_cast<std::int8_t>(change);
        }
      }
    }
    sort_by(out, [&](const Selection& option) { return weight(option, price); });
    return out;
  }

  int weight(const Selection& selection, Price price) const {
    return selections_.cost(selection)[static_cast<std::size_t>(price)];
  }

  std::optional<Selection> cheapest(std::size_t below, const Selection& taken) {
    if (below == 0) return least(taken);
    const auto price = static_cast<Price>(below - 1);
    std::optional<Selection> best;
    for (const Selection& option : options(price, taken)) {
      if (selections_.runs() > last_run_) return best;
      if (best && weight(option, price) > weight(*best, price)) break;
      if (!may_have_what_it_must(option, below - 1) || known_to_suffice(option) || !could_fit(option, below - 1))
        continue;
      if (price == Price::time && suffices_without(option)) continue;
      std::optional<Selection> found = cheapest(below - 1, option);
      if (found && (!best || selections_.cost(*found) < selections_.cost(*best))) best = std::move(found);
    }
    return best;
  }

  bool may_have_what_it_must(const Selection& selection, std::size_t below) const {
    return has_what_it_must(selection) ||
           std::any_of(tier_.has_one_of.begin(), tier_.has_one_of.end(),
                       [&](Price price) { return static_cast<std::size_t>(price) < below; });
  }

  /// A selection less what its tier must have, with whatever costs nothing.
  Selection without_must(const Selection& selection) const {
    Selection without = selection;
    for (std::size_t i = 0; i < size(); ++i)
      if (without[i] != kNotTaken && has(tier_.has_one_of, price_of(i, static_cast<std::size_t>(without[i]))))
        without[i] = kNotTaken;
    return filled(without, static_cast<std::size_t>(Price::time));
  }

  bool known_to_suffice(const Selection& selection) const {
    const Selection without = without_must(selection);
    return std::any_of(suffice_.begin(), suffice_.end(), [&](const Selection& known) {
      for (std::size_t i = 0; i < size(); ++i)
        if (is_ordered(i) ? without[i] < known[i] : without[i] != known[i] && known[i] != kNotTaken) return false;
      return true;
    });
  }

  /// What a tier must have is not needed: the rest is enough. Learns the least of the rest that is.
  bool suffices_without(const Selection& selection) {
    if (tier_.has_one_of.empty()) return false;
    Selection without = without_must(selection);
    if (known_not_to_fit(without) || !fits(without)) return false;
    for (std::size_t i = 0; i < size(); ++i) {
      if (without[i] == kNotTaken || price_of(i, static_cast<std::size_t>(without[i])) != Price::time) continue;
      const std::int8_t taken = std::exchange(without[i], kNotTaken);
      if (!fits(without)) without[i] = taken;
    }
    suffice_.push_back(std::move(without));
    return true;
  }

  /// A selection that fits, less what it does not need; none where it does not need what it must have.
  std::optional<Selection> least(Selection selection) {
    for (std::size_t i = 0; i < size(); ++i) {
      if (selection[i] == kNotTaken) continue;
      const std::int8_t taken = std::exchange(selection[i], kNotTaken);
      if (!fits(selection)) {
        selection[i] = taken;
      } else if (!has_what_it_must(selection)) {
        return std::nullopt;
      }
    }
    return selection;
  }

  static constexpr std::size_t kMostRuns = 300;

  Selections& selections_;
  const Tier& tier_;
  const bool tight_;
  const std::size_t last_run_;
  std::vector<Selection> do_not_fit_;  ///< nor does what is weaker
  std::vector<Selection> suffice_;     ///< without what the tier must have, and so does what is stronger
};

}  // namespace

std::optional<Selection> cheapest_selection(Selections& selections, const Tier& tier) {
  const std::optional<Selection> fits = Search(selections, tier, false).run();
  return fits ? fits : Search(selections, tier, true).run();
}

std::vector<Combination> cheapest_combinations(Selections& selections) {
  const Tier same{{Price::nothing, Price::time}, {}};
  const Tier training{{Price::nothing, Price::time, Price::numerics, Price::training},
                      {Price::numerics, Price::training}};
  const Tier hardware{{Price::nothing, Price::time, Price::hardware}, {Price::hardware}};
  const Tier everything{{Price::nothing, Price::time, Price::numerics, Price::training, Price::hardware}, {}};
  std::vector<Combination> combinations;
  for (const Tier* tier : {&same, &training, &hardware, &everything}) {
    if (tier == &everything && !combinations.empty()) break;
    if (const std::optional<Selection> selection = cheapest_selection(selections, *tier))
      combinations.push_back(selections.combination(*selection));
  }
  return combinations;
}

}  // namespace oometer
