#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "advice/advice.h"
#include "advice/changes.h"

namespace oometer {

/// The first choices, in the order of their cost, that together make the job fit, less every one that turns out not to
/// be needed, and each as mild as it can be. None where all of them together are not enough.
std::optional<Combination> cheapest_combination(const nlohmann::json& document, const std::vector<Choice>& choices);

}  // namespace oometer
