#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "advice/advice.h"
#include "job/job.h"

namespace oometer {

/// Of a job that fits, what fits there too and costs less: without a remedy that it has, with less sharding, on fewer
/// GPUs, on the smallest GPU of the vendor. Each was run.
std::vector<Spare> what_fits_beside(const Job& job, const nlohmann::json& document);

}  // namespace oometer
