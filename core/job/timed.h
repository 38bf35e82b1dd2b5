#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "job/estimate.h"
#include "time/interval.h"
#include "time/step_time.h"

namespace oometer {

class JsonWriter;

/// How long a job's step, or its turn of inference, takes.
struct JobTime {
  std::string unknown;  ///< why there is no time; "" where there is one
  StepTime step;
  TimeInterval interval;
  double tokens_per_second =
      0;  ///< of all replicas, padding too (samples where there is no text); of generate() new ones

  std::vector<std::string> notes;
};

/// Of a job and the log of its run.
JobTime job_time(const Job& job, const Log& log);

/// A member that is a number, not negative, to so many decimals: the same text on every machine.
void write_decimal(JsonWriter& json, const char* key, double value, int decimals);

/// The members `step`, `low`, `high` (seconds) and `tokens_per_second` of an object.
void write_seconds(JsonWriter& json, const JobTime& time);

/// The report of estimate_json with the member `time`: of an optimizer step (the mean of those after the first), of
/// inference a turn. Null where oometer does not know it; a note then says why. In files of their own, as first answers
/// do without.
///
/// `step`, `low`, `high`: seconds; `by_kind`: seconds, with `communication` (what no computation hides) and `idle` (the
/// GPU waits for the host), which sum to `step`; `tokens_per_second`: JobTime's; `mfu`, `hfu`: flops.model and
/// flops.hardware a second, of the data sheet's; `flops`, `bytes_moved` and `bytes_sent`: of one GPU; `utilization`:
/// {"gputl", "gract", "smact", "smocc", "tenso", "drama"}, fractions that are averages of the step
/// (time/utilization.h). Where the job has a `cost`, of all its GPUs: `energy_kwh` and `price` of a step,
/// `per_million_tokens` {"energy_kwh", "price"}, `training` {"tokens", "days", "energy_kwh", "price"}.
std::string timed_estimate_json(std::string_view job, const EstimateOptions& options = {});

/// The time alone, {"time": as above, "notes": [texts], "lanes": [...]}, or {"error": {...}}. `lanes` are equal
/// stretches of the last step: {"phase", "seconds", and shares of these: "smact", "tenso", "drama", "communication",
/// "idle"}. Never throws.
std::string time_json(std::string_view job);

}  // namespace oometer
