#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oometer::cli {

/// What became of a job's configuration files, as a table: the JSON of resolve_json.
std::string resolved_table(const nlohmann::ordered_json& answer);

}  // namespace oometer::cli
