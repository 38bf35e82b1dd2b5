#pragma once

#include <string>

#include "report/report.h"

namespace oometer {

struct JsonOptions {
  bool full_tree = false;  ///< else modules down to the layers: what a ModuleList holds is not opened
};

/// The report as JSON, version 1: see the job's schema for its counterpart. Integers only, so native and WebAssembly
/// text are the same.
std::string to_json(const Report& report, const Log& log, const ReportInput& input, const JsonOptions& options = {});

}  // namespace oometer
