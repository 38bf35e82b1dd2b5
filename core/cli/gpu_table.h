#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace oometer::cli {

/// Which GPUs a job fits on, as a table: the JSON of gpus_json.
std::string gpu_table(const nlohmann::ordered_json& answer);

}  // namespace oometer::cli
