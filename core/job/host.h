#pragma once

#include <string>
#include <string_view>

#include "job/job.h"
#include "job/simulate.h"
#include "report/report.h"

namespace oometer {

/// What a job's run needs of a node's memory: while it loads, trains, saves and resumes.
HostReport host_report(const Job& job, const Simulation& simulation);

/// The report's `host`. Where the node's memory is known and is the worse of the two, its verdict is the report's.
void add_host(const Job& job, const Simulation& simulation, Report& report);

/// {"host": ...} of a job given as JSON (version 1), as its report has it; or {"error": {...}}. Never throws.
std::string host_json(std::string_view job);

}  // namespace oometer
