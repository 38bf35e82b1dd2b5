#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/job.h"
#include "job/settings/remedy.h"

namespace oometer {

/// One thing that a person could change.
struct Change {
  std::string label;  ///< for people: "Activation checkpointing"
  std::string costs;  ///< what it costs, for people: "slower: ..."
  Price price = Price::nothing;
  int weight = 1;                                 ///< among changes of that price; at least 1
  std::function<void(nlohmann::json& job)> make;  ///< makes it, in a job as it was given and perhaps changed since
};

/// Which of several ways to change one thing are worth telling.
enum class Tell : std::uint8_t {
  each,
  enough,   ///< steps of one measure: the mildest that makes the job fit, else the last that helps
  fitting,  ///< the mildest that makes a job fit that does not
};

/// Ways to change one and the same thing, of which at most one is taken; the mildest first.
struct Alternatives {
  std::vector<Change> changes{};
  Tell tell = Tell::each;
  /// False: it takes the place of other changes, so that more of it need not be less memory.
  bool is_ordered = true;
};

/// Everything that applies to a job, in the order in which it is made: what takes several settings at once, then the
/// remedies of single settings (job/settings). `document` is the job as it was given. A change that the core does not
/// accept by itself is left out; what it saves is for a run to say.
std::vector<Alternatives> possible_changes(const Job& job, const nlohmann::json& document);

/// Puts a GPU of the catalogue in the place of the job's.
void set_gpu(nlohmann::json& job, const std::string& id);

}  // namespace oometer
