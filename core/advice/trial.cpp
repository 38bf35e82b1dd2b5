#include "advice/trial.h"

#include "job/estimate.h"

namespace oometer {

using nlohmann::json;

Trial trial_of(const Report& report) { return {report.verdict, report.fits, report.total}; }

std::optional<Trial> try_job(const json& job) {
  ReportOptions options;
  options.attribution = false;
  const std::string text = text_of(job);
  const Result<Estimate> result = estimate(std::string_view(text), options);
  if (!result) return std::nullopt;
  return trial_of(result->report);
}

json patched(const json& job, const json& patch) {
  json changed = job;
  changed.merge_patch(patch);
  return changed;
}

std::string text_of(const json& patch) { return patch.dump(-1, ' ', false, json::error_handler_t::replace); }

}  // namespace oometer
