#include "advice/selection.h"

#include <algorithm>
#include <utility>

#include "advice/trial.h"
#include "config/patch.h"
#include "job/parse.h"

namespace oometer {

using nlohmann::json;

bool Cost::operator<(const Cost& other) const {
  for (std::size_t price = kPrices; price-- > 0;)
    if ((*this)[price] != other[price]) return (*this)[price] < other[price];
  return false;
}

Cost Selections::cost(const Selection& selection) const {
  Cost cost{};
  for (std::size_t i = 0; i < selection.size(); ++i) {
    if (selection[i] == kNotTaken) continue;
    const Change& change = choices_[i].changes[static_cast<std::size_t>(selection[i])];
    cost[static_cast<std::size_t>(change.price)] += change.weight;
  }
  return cost;
}

json Selections::job(const Selection& selection) const {
  json job = document_;
  for (std::size_t i = 0; i < selection.size(); ++i)
    if (selection[i] != kNotTaken) choices_[i].changes[static_cast<std::size_t>(selection[i])].make(job);
  return job;
}

const std::optional<Trial>& Selections::run(const Selection& selection) {
  const auto [trial, is_new] = trials_.try_emplace(selection);
  if (is_new) trial->second = try_job(job(selection));
  return trial->second;
}

bool Selections::fits(const Selection& selection, bool tight) {
  const std::optional<Trial>& trial = run(selection);
  return trial && (tight ? trial->fits : trial->verdict == Verdict::fits);
}

bool Selections::accepted(const Selection& selection) const { return parse_job(text_of(job(selection))).has_value(); }

bool Selections::go_together(std::size_t a, std::int8_t change_of_a, std::size_t b, std::int8_t change_of_b) {
  Selection pair = nothing();
  pair[a] = change_of_a;
  pair[b] = change_of_b;
  const auto [known, is_new] = pairs_.try_emplace(std::move(pair));
  if (is_new) known->second = accepted(known->first);
  return known->second;
}

Combination Selections::combination(const Selection& selection) {
  Combination combination;
  for (std::size_t i = 0; i < selection.size(); ++i) {
    if (selection[i] == kNotTaken) continue;
    const Change& change = choices_[i].changes[static_cast<std::size_t>(selection[i])];
    combination.parts.push_back({change.label, change.costs, change.price});
    combination.price = std::max(combination.price, change.price);
  }
  combination.change = text_of(patch_between(document_, job(selection)));
  combination.trial = *run(selection);
  return combination;
}

}  // namespace oometer
