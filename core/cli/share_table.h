#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace oometer::cli {

/// Whether jobs fit on one GPU together, as a table: the JSON of share_json, of these files.
std::string share_table(const std::vector<std::string>& files, const nlohmann::ordered_json& answer);

}  // namespace oometer::cli
