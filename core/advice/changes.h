#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "job/job.h"

namespace oometer {

/// One thing that a person could change.
struct Change {
  std::string label;     ///< for people: "Activation checkpointing"
  std::string costs;     ///< what it costs, for people: "slower: ..."
  nlohmann::json patch;  ///< RFC 7386, on the job as it was given
};

/// What a change is paid with, the cheapest first.
enum class Price : std::uint8_t { nothing, time, numerics, hardware, training };

/// Which of several ways to change one thing are worth telling.
enum class Tell : std::uint8_t {
  each,
  enough,   ///< steps of one measure: the mildest that makes the job fit, else the last that helps
  fitting,  ///< the mildest that makes a job fit that does not
};

/// Ways to change one and the same thing, of which at most one is taken; the mildest first.
struct Choice {
  Price price = Price::nothing;
  std::vector<Change> changes{};
  Tell tell = Tell::each;
};

/// Everything that applies to a job, in the order of its price. `document` is the job as it was given. Whether the core
/// accepts a change, and what it saves, is for a run to say.
std::vector<Choice> possible_changes(const Job& job, const nlohmann::json& document);

}  // namespace oometer
