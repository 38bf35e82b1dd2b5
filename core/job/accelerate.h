#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "result.h"

namespace oometer {

/// Says in the job's own keys what its `parallel.accelerate_config` says, and takes that out: the file that `accelerate
/// config` writes, as JSON, as `accelerate launch` reads it (accelerate 1.12: commands/config/config_args.py,
/// utils/dataclasses.py DeepSpeedPlugin and FullyShardedDataParallelPlugin). `job.parallel` has one.
std::optional<Error> spell_out_accelerate(nlohmann::json& job);

/// Where a job that was spelled out has an error, as a place in its accelerate_config.
std::string accelerate_pointer(const std::string& pointer);

}  // namespace oometer
