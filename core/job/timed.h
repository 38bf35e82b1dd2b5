#pragma once

#include <string>
#include <string_view>

#include "job/estimate.h"

namespace oometer {

/// The report of estimate_json with the member `time`: of an optimizer step (the mean of those after the first), of
/// inference a turn. Null where oometer does not know it; a note then says why. In files of their own, as first answers
/// do without.
///
/// `step`, `low`, `high`: seconds; `by_kind`: seconds, with `communication` (what no computation hides) and `idle` (the
/// GPU waits for the host), which sum to `step`; `tokens_per_second`: of all replicas, padding too, of inference new
/// ones; `mfu`, `hfu`: flops.model and flops.hardware a second, of the data sheet's; `flops`, `bytes_moved` and
/// `bytes_sent`: of one GPU.
std::string timed_estimate_json(std::string_view job, const EstimateOptions& options = {});

}  // namespace oometer
