#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oometer::cli {

/// The answer of plans_json as a table for people.
std::string plan_table(const nlohmann::ordered_json& answer);

}  // namespace oometer::cli
