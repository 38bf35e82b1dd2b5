#pragma once

#include <string>
#include <string_view>

#include "job/job.h"
#include "report/report.h"

namespace oometer {

/// Peak reserved memory of a job that can run, over random orders of its samples: tens of runs, each with other samples
/// of the same distribution. Nothing where the job says the samples themselves.
OrderSpread order_spread(const Job& job);

/// The same of a job given as JSON (version 1): {"spread": ...} as in a report, {} where there is none; or
/// {"error": {...}}.
std::string order_spread_json(std::string_view job);

}  // namespace oometer
