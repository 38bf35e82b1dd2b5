#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "advice/advice.h"
#include "advice/changes.h"

namespace oometer {

/// Which change of each choice is taken; kNotTaken: none.
using Selection = std::vector<std::int8_t>;
inline constexpr std::int8_t kNotTaken = -1;

/// Weights by price: of two the cheaper has less of the dearest price, then less of the next ...
struct Cost : std::array<int, kPrices> {
  bool operator<(const Cost& other) const;
};

/// Choices around a job, and what was found out about selections of them. Each selection is run once at most.
class Selections {
 public:
  /// Both live longer.
  Selections(const nlohmann::json& document, const std::vector<Alternatives>& choices)
      : document_(document), choices_(choices) {}

  const std::vector<Alternatives>& choices() const { return choices_; }
  Selection nothing() const { return Selection(choices_.size(), kNotTaken); }
  Cost cost(const Selection& selection) const;

  /// The job with the changes.
  nlohmann::json job(const Selection& selection) const;
  /// None where the core refuses it.
  const std::optional<Trial>& run(const Selection& selection);
  /// Whether a run fits; with `tight` also where its interval's upper end does not.
  bool fits(const Selection& selection, bool tight);
  /// The core reads it; a run may still refuse it.
  bool accepted(const Selection& selection) const;
  /// The core accepts two changes of different choices together.
  bool go_together(std::size_t a, std::int8_t change_of_a, std::size_t b, std::int8_t change_of_b);
  Combination combination(const Selection& selection);

  /// How many runs there were.
  std::size_t runs() const { return trials_.size(); }

 private:
  const nlohmann::json& document_;
  const std::vector<Alternatives>& choices_;
  std::map<Selection, std::optional<Trial>> trials_;
  std::map<Selection, bool> pairs_;  ///< whether they go together
};

}  // namespace oometer
