#include "cli/telemetry.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>
#include <utility>

#include "job/estimate.h"
#include "job/parse.h"
#include "job/timed.h"

namespace oometer::cli {

using nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

namespace {

/// A number above 0 at a line's pointer; none where there is none.
std::optional<double> number(const json& line, const char* pointer) {
  const json::json_pointer at(pointer);
  if (!line.contains(at) || !line[at].is_number()) return std::nullopt;
  const double value = line[at].get<double>();
  return std::isfinite(value) && value > 0 ? std::optional(value) : std::nullopt;
}

bool is_alike(const Job& a, const Job& b) {
  return a.task == b.task && a.training.quantization.has_value() == b.training.quantization.has_value() &&
         (a.parallel.world_size() == 1) == (b.parallel.world_size() == 1);
}

/// Adds a run; false where its job is refused.
bool add(Telemetry& telemetry, const Job& job, const json& line, double reserved) {
  const Result<Job> its = parse_job(line["job"].dump(-1, ' ', false, json::error_handler_t::replace));
  if (!its) return false;
  if (!is_alike(job, *its)) {
    ++telemetry.others;
    return true;
  }
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> run = estimate(*its, options);
  if (!run) return false;
  telemetry.reserved.push_back(reserved / static_cast<double>(run->report.peak.reserved));
  const std::optional<double> seconds = number(line, "/measured/step_seconds");
  if (!seconds || its->gpu.id.empty() || its->gpu.id != job.gpu.id) return true;
  const JobTime time = job_time(*its, run->simulation.log);
  if (time.unknown.empty()) telemetry.step.push_back(*seconds / time.step.seconds);
  return true;
}

/// Of an interval as the report has it, and as the runs have it.
std::pair<double, double> refined(double low, double high, const std::vector<double>& its, double of) {
  const double least = its.front() * of, most = its.back() * of;
  if (its.size() >= kEnoughRuns) return {least, most};
  return {std::min(low, least), std::max(high, most)};
}

std::string words(const char* what, const std::vector<double>& its) {
  const std::size_t n = its.size();
  char text[320];
  std::snprintf(text, sizeof text, "Your %zu run%s like it: %s from %.3f to %.3f times what is computed. ", n,
                n == 1 ? "" : "s", what, its.front(), its.back());
  std::string out = text;
  if (n >= kEnoughRuns) {
    std::snprintf(text, sizeof text, "A new one lies between with a probability of %zu %%: this is the interval.",
                  100 * (n - 1) / (n + 1));
    return out + text;
  }
  return out + "They widen the interval where they lie outside it; " + std::to_string(kEnoughRuns) +
         " are enough to replace it.";
}

const char* const kBasis = "your own runs";

void refine_memory(OrderedJson& report, const Job& job, const std::vector<double>& its) {
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> run = estimate(job, options);
  if (!run) return;
  const Report& own = run->report;
  const Outside outside = job.gpu.allocator_limit ? Outside{} : run->input.outside;
  const auto low = static_cast<double>(own.low - outside.low), high = static_cast<double>(own.high - outside.high);
  const auto [least, most] = refined(low, high, its, static_cast<double>(own.peak.reserved));
  OrderedJson& interval = report["interval"];
  interval["low"] = std::max(std::llround(least), static_cast<long long>(own.peak.allocated)) + outside.low;
  interval["high"] = std::llround(most) + outside.high;
  if (least < low || most > high || its.size() >= kEnoughRuns) interval["basis"] = kBasis;
  report["notes"].push_back(words("PyTorch reserved", its));
  if (!own.fits) return;
  const bool is_tight = interval["high"].get<std::int64_t>() > job.gpu.usable_bytes ||
                        std::any_of(run->input.unmodelled.begin(), run->input.unmodelled.end(),
                                    [](const Unmodelled& left_out) { return left_out.may_need_more(); });
  report["verdict"] = verdict_name(is_tight ? Verdict::tight : Verdict::fits);
}

void refine_time(OrderedJson& report, const std::vector<double>& its) {
  OrderedJson& time = report["time"];
  if (!time.is_object()) return;
  const auto low = time["low"].get<double>(), high = time["high"].get<double>();
  const auto [least, most] = refined(low, high, its, time["step"].get<double>());
  constexpr double kMicroseconds = 1e6;
  time["low"] = std::round(least * kMicroseconds) / kMicroseconds;
  time["high"] = std::round(most * kMicroseconds) / kMicroseconds;
  if (least < low || most > high || its.size() >= kEnoughRuns) time["basis"] = kBasis;
  report["notes"].push_back(words("a step took", its));
}

}  // namespace

Result<Telemetry> read_telemetry(std::istream& lines, const std::string& name, const Job& job) {
  Telemetry telemetry;
  std::int64_t count = 0, runs = 0;
  for (std::string text; std::getline(lines, text);) {
    ++count;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    const json line = json::parse(text, nullptr, false);
    const std::optional<double> reserved = number(line, "/measured/reserved");
    if (!line.is_object() || !reserved || !line.contains("job") || !line["job"].is_object())
      return Error{"invalid-value", "",
                   name + ", line " + std::to_string(count) +
                       ": not a run that oometer.FitsCallback wrote; expected a JSON object with `job`, and with "
                       "`measured` whose `reserved` is a number of bytes above 0"};
    ++runs;
    if (!add(telemetry, job, line, *reserved)) ++telemetry.refused;
  }
  if (runs == 0) return Error{"invalid-value", "", name + ": no runs are in it"};
  std::sort(telemetry.reserved.begin(), telemetry.reserved.end());
  std::sort(telemetry.step.begin(), telemetry.step.end());
  return telemetry;
}

void refine(OrderedJson& report, const Job& job, const Telemetry& telemetry) {
  if (!telemetry.reserved.empty()) refine_memory(report, job, telemetry.reserved);
  if (!telemetry.step.empty()) refine_time(report, telemetry.step);
  OrderedJson& notes = report["notes"];
  if (telemetry.reserved.empty())
    notes.push_back(
        "None of your runs is like this job (4-bit weights, one GPU or several): the interval is as without them.");
  if (telemetry.refused > 0)
    notes.push_back(std::to_string(telemetry.refused) + " of your runs are left out: this version refuses their jobs.");
}

}  // namespace oometer::cli
