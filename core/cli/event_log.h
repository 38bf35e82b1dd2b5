#pragma once

#include <string>

#include "time/gpu_speed.h"
#include "trace/log.h"

namespace oometer::cli {

/// The raw log, one JSON object a line, as tools/trace_diff.py reads it.
std::string event_log(const Log& log);

/// The work of its operators, one JSON object a line. `times`: how often, where blocks or micro-steps were not
/// executed. On a GPU whose kernels were measured also what one takes (`ns`), and whether FLOPs or bytes bound it.
std::string work_log(const Log& log, const GpuSpeed* gpu);

}  // namespace oometer::cli
