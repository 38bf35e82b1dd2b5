#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/job.h"

namespace oometer {

/// One thing that a person could change.
struct Change {
  std::string label;     ///< plain words: "Activation checkpointing"
  std::string costs;     ///< plain words: what is paid for it
  nlohmann::json patch;  ///< RFC 7386, on the job as it was given
};

/// Ways to change one and the same thing, of which at most one is taken; the mildest first.
struct Choice {
  std::vector<Change> changes;
  bool first_that_fits = false;  ///< only the mildest that makes the job fit is worth telling (a larger GPU)
};

/// Everything that applies to a job, the cheapest first: what costs nothing, then time, numerics, hardware, and at last
/// what changes the training itself. `document` is the job as it was given. Whether the core accepts a change, and what
/// it saves, is for a run to say.
std::vector<Choice> possible_changes(const Job& job, const nlohmann::json& document);

}  // namespace oometer
