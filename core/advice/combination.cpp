#include "advice/combination.h"

#include <utility>

#include "advice/trial.h"

namespace oometer {

using nlohmann::json;

namespace {

constexpr std::size_t kNotTaken = static_cast<std::size_t>(-1);

/// Which change of each choice is taken.
class Selection {
 public:
  Selection(const json& document, const std::vector<Choice>& choices)
      : document_(document), choices_(choices), taken_(choices.size(), kNotTaken) {}

  /// Tries another change of a choice; keeps it where the core accepts the job. True: the job fits now.
  bool strengthen(std::size_t choice, std::size_t change) {
    const std::size_t before = std::exchange(taken_[choice], change);
    const std::optional<Trial> trial = run();
    if (!trial) taken_[choice] = before;
    return trial && trial->fits;
  }

  /// Tries to do with less; keeps it where the job still fits.
  bool weaken(std::size_t choice, std::size_t change) {
    const std::size_t before = std::exchange(taken_[choice], change);
    const std::optional<Trial> trial = run();
    if (trial && trial->fits) return true;
    taken_[choice] = before;
    return false;
  }

  /// Does with as little of each choice as it can, the most expensive first.
  void thin() {
    for (std::size_t choice = choices_.size(); choice-- > 0;) {
      const std::size_t now = taken_[choice];
      if (now == kNotTaken || weaken(choice, kNotTaken)) continue;
      for (std::size_t change = 0; change < now; ++change) {
        if (weaken(choice, change)) break;
      }
    }
  }

  Combination result() const {
    Combination combination;
    combination.change = text_of(patch());
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      if (taken_[i] != kNotTaken) combination.labels.push_back(choices_[i].changes[taken_[i]].label);
    }
    combination.trial = *run();
    return combination;
  }

 private:
  /// Patches touch different keys; null, a removal, is laid over like any value.
  static void lay_over(json& patch, const json& more) {
    for (const auto& [key, value] : more.items()) {
      json& slot = patch[key];
      if (slot.is_object() && value.is_object()) {
        lay_over(slot, value);
      } else {
        slot = value;
      }
    }
  }

  json patch() const {
    json merged = json::object();
    for (std::size_t i = 0; i < taken_.size(); ++i) {
      if (taken_[i] != kNotTaken) lay_over(merged, choices_[i].changes[taken_[i]].patch);
    }
    return merged;
  }

  std::optional<Trial> run() const { return try_job(patched(document_, patch())); }

  const json& document_;
  const std::vector<Choice>& choices_;
  std::vector<std::size_t> taken_;
};

}  // namespace

std::optional<Combination> cheapest_combination(const json& document, const std::vector<Choice>& choices) {
  Selection selection(document, choices);
  for (std::size_t choice = 0; choice < choices.size(); ++choice) {
    for (std::size_t change = 0; change < choices[choice].changes.size(); ++change) {
      if (!selection.strengthen(choice, change)) continue;
      selection.thin();
      return selection.result();
    }
  }
  return std::nullopt;
}

}  // namespace oometer
