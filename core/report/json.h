#pragma once

#include <string>
#include <vector>

#include "report/report.h"

namespace oometer {

struct JsonOptions {
  bool full_tree = false;  ///< else modules down to the layers: what a ModuleList holds is not opened
};

/// The report as JSON, version 1: see the job's schema for its counterpart. Integers only, so native and WebAssembly
/// text are the same.
std::string to_json(const Report& report, const Log& log, const ReportInput& input, const JsonOptions& options = {});

/// The report's head alone, for questions about thousands of jobs: verdict, fits, headroom, peak, interval, gpu.
std::string summary_to_json(const Report& report, const ReportInput& input);

/// What the values of a row of the timeline are: "event", then bytes.
std::vector<const char*> timeline_columns();

}  // namespace oometer
