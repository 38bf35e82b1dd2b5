#pragma once

#include <string>
#include <string_view>

#include "job/job.h"
#include "result.h"

namespace oometer {

/// Reads a job (JSON, version 1; presets/job.schema.json), fills in the defaults and checks that it can run. Strict:
/// the first thing that is wrong is the error. Never throws; takes any bytes.
Result<Job> parse_job(std::string_view text);

/// The job as canonical JSON: only what differs from the defaults, keys sorted. `parse_job` of it gives an equal job,
/// and so a permalink can hold it.
std::string to_json(const Job& job);

/// The job with every default, for one preset: the page's start values and the schema's documentation.
Result<Job> default_job(std::string_view preset);

}  // namespace oometer
