#pragma once

#include <string>
#include <vector>

#include "report/report.h"

namespace oometer {

class JsonWriter;

struct JsonOptions {
  bool full_tree = false;  ///< else modules down to the layers: what a ModuleList holds is not opened
};

/// The report as JSON, version 1: see the job's schema for its counterpart. Integers only, so native and WebAssembly
/// text are the same. `peak.total` is what the job takes on a GPU that has enough, `peak.least` what it needs at least
/// (Report::least), there only where the job runs on a GPU that has less than the total.
std::string to_json(const Report& report, const Log& log, const ReportInput& input, const JsonOptions& options = {});

/// The report's head alone, for questions about thousands of jobs: verdict, fits, headroom, peak (without
/// `least`), interval, gpu.
std::string summary_to_json(const Report& report, const ReportInput& input);

/// The member `spread` of a report; none where no order but the job's own was tried.
void write_spread(JsonWriter& json, const OrderSpread& spread);

/// What a module holds at the peak: an array like the report's `largest`, where a part of a flat buffer has `"flat":
/// true` and its elements for a shape.
std::string holdings_to_json(const std::vector<Holding>& holdings, const Report& report, const Log& log);

/// What the values of a row of the timeline are: "event", then bytes, then "op" and "module", places in TimelinePlaces.
std::vector<const char*> timeline_columns();

/// What happened at the events of a timeline's rows, each name once.
struct TimelinePlaces {
  struct Place {
    std::int64_t op, module;
  };
  std::vector<const char*> ops;
  std::vector<std::string> modules;  ///< paths
  std::vector<Place> rows;
};
TimelinePlaces timeline_places(const Report& report, const Log& log);

}  // namespace oometer
