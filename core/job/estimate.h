#pragma once

#include <string>
#include <string_view>

#include "job/job.h"
#include "job/simulate.h"
#include "report/report.h"
#include "result.h"

/// The whole way from a job to its report.
namespace oometer {

/// A report and the run it is of.
struct Estimate {
  Simulation simulation;
  ReportInput input;
  Report report;
};

/// PyTorch's allocator in that version, on a device without a limit.
AllocatorOptions allocator_options(const Behaviours& behaviours, const Runtime& runtime);

/// Runs a job, without a limit and within its GPU's. Nothing is kept between calls. An error where sizes do not fit
/// 63 bits, or nothing is trained.
Result<Estimate> estimate(const Job& job, const ReportOptions& options = {});

/// The same of a job given as JSON (version 1): parse_job, then estimate.
Result<Estimate> estimate(std::string_view job, const ReportOptions& options = {});

struct EstimateOptions {
  ReportOptions report;
  bool full_tree = false;  ///< every module, not only those down to the layers
  bool orders = false;     ///< with `spread`, which takes tens of times as long (job/order_spread.h)
};

/// The report of a job given as JSON (version 1), as JSON; or {"error": {..., "fixes"}} (error_json). Takes any
/// bytes and never throws.
std::string estimate_json(std::string_view job, const EstimateOptions& options = {});

/// The report's head alone, or {"error": {...}}: verdict, fits, headroom, peak, interval, gpu. For sweeps: what only
/// the whole report needs is not computed.
std::string summary_json(std::string_view job);

/// Everything that one module, by its path, and those below it hold at the peak, the largest first: an array like the
/// report's `largest`, where a part of a flat buffer has `"flat": true`; or {"error": {...}}.
std::string tensors_json(std::string_view job, std::string_view module);

/// {"error": {"code", "pointer", "message"}}
std::string error_json(const Error& error);

/// The same with "fixes": [{"label", "change"}], the known ways out of it (job/fixes.h), where there are any. `label`
/// is what a button says, `change` a merge patch (RFC 7386) on the job as given, with which it is accepted.
std::string error_json(const Error& error, std::string_view job);

/// The job's memory snapshot, as torch.cuda.memory._dump_snapshot writes it (a pickle).
Result<std::string> estimate_snapshot(std::string_view job);

}  // namespace oometer
