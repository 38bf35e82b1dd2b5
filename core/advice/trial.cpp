#include "advice/trial.h"

#include "job/estimate.h"
#include "job/parse.h"
#include "job/simulate.h"
#include "job/timed.h"

namespace oometer {

using nlohmann::json;

Trial trial_of(const Report& report) {
  return {report.verdict, report.fits, report.total, report.headroom, std::nullopt};
}

std::optional<Trial> try_job(const json& job) {
  ReportOptions options;
  options.attribution = false;
  const std::string text = text_of(job);
  const Result<Estimate> result = estimate(std::string_view(text), options);
  if (!result) return std::nullopt;
  return trial_of(result->report);
}

std::optional<double> speed_of(const json& document) {
  const Result<Job> job = parse_job(text_of(document));
  if (!job) return std::nullopt;
  const Simulation run = simulate(*job, resolve_behaviours(job->runtime));
  if (run.refusal) return std::nullopt;
  const JobTime time = job_time(*job, run.log);
  return time.unknown.empty() ? std::optional(time.tokens_per_second) : std::nullopt;
}

json patched(const json& job, const json& patch) {
  json changed = job;
  changed.merge_patch(patch);
  return changed;
}

std::string text_of(const json& patch) { return patch.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace oometer
