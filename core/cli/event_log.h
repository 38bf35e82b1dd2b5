#pragma once

#include <string>

#include "trace/log.h"

namespace oometer::cli {

/// The raw log, one JSON object a line, as tools/trace_diff.py reads it.
std::string event_log(const Log& log);

/// The work of its operators, one JSON object a line. `times`: how often, where blocks or micro-steps were not
/// executed.
std::string work_log(const Log& log);

}  // namespace oometer::cli
