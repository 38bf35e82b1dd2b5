#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oometer::cli {

/// An answer of advise_json for people: how far the settings go, what each change saves and costs, what is enough.
std::string advice_table(const nlohmann::ordered_json& advice);

}  // namespace oometer::cli
