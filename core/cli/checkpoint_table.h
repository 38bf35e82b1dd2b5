#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oometer::cli {

/// The answer of checkpoint_advice_json as a table for people.
std::string checkpoint_table(const nlohmann::ordered_json& answer);

}  // namespace oometer::cli
