#pragma once

#include <string>
#include <vector>

#include "job/job.h"
#include "report/report.h"

namespace oometer {

/// What surprises people about a result, in sentences, with its own numbers.
std::vector<std::string> explain(const Job& job, const Log& log, const Report& report, std::int64_t host_bytes);

}  // namespace oometer
