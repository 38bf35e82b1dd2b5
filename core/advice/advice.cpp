#include "advice/advice.h"

#include <algorithm>
#include <iterator>

#include "advice/beside.h"
#include "advice/changes.h"
#include "advice/combination.h"
#include "advice/largest.h"
#include "advice/trial.h"
#include "config/patch.h"
#include "config/reader.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "job/timed.h"
#include "report/json_writer.h"
#include "sort_by.h"

namespace oometer {

using nlohmann::json;

namespace {

/// The single changes that help: each saves, or is a GPU on which the job fits.
std::vector<TriedChange> single_changes(const json& document, const Trial& now,
                                        const std::vector<Alternatives>& choices) {
  std::vector<TriedChange> tried;
  for (const Alternatives& choice : choices) {
    if (choice.tell == Tell::fitting && now.fits) continue;
    std::vector<TriedChange> helping;
    for (const Change& change : choice.changes) {
      json changed = document;
      change.make(changed);
      const std::optional<Trial> trial = try_job(changed);
      if (!trial) continue;
      const std::int64_t saves = now.total - trial->total;
      const bool helps = choice.tell == Tell::fitting ? trial->fits : saves > 0 || (trial->fits && !now.fits);
      if (!helps) continue;
      if (choice.tell != Tell::each) helping.clear();
      helping.push_back(
          {change.label, change.costs, change.price, text_of(patch_between(document, changed)), *trial, saves});
      if (choice.tell != Tell::each && trial->fits) break;
    }
    std::move(helping.begin(), helping.end(), std::back_inserter(tried));
  }
  sort_by(tried, [](const TriedChange& change) { return -change.saves; });
  return tried;
}

const char* price_name(Price price) {
  constexpr const char* kNames[] = {"nothing", "time", "numerics", "training", "hardware"};
  return kNames[static_cast<std::size_t>(price)];
}

void write_number(JsonWriter& json, const char* key, const std::optional<std::int64_t>& number) {
  json.key(key);
  if (number) {
    json.value(*number);
  } else {
    json.null();
  }
}

void write_speed(JsonWriter& json, const std::optional<double>& tokens_per_second) {
  if (tokens_per_second)
    write_decimal(json, "tokens_per_second", *tokens_per_second, 1);
  else
    write_number(json, "tokens_per_second", std::nullopt);
}

void write_change(JsonWriter& json, const std::string& change, const Trial& trial) {
  json.key("change");
  json.raw(change);
  json.member("peak", trial.total);
  json.member("verdict", verdict_name(trial.verdict));
  write_speed(json, trial.tokens_per_second);
}

void write_part(JsonWriter& json, const std::string& label, Price price, const std::string& costs) {
  json.member("label", label);
  json.member("price", price_name(price));
  json.member("costs", costs);
}

void write_combination(JsonWriter& json, const Combination& combination) {
  json.begin_object();
  json.member("price", price_name(combination.price));
  json.key("parts");
  json.begin_array();
  std::vector<std::string> labels;
  for (const Combination::Part& part : combination.parts) {
    json.begin_object();
    write_part(json, part.label, part.price, part.costs);
    json.end_object();
    labels.push_back(part.label);
  }
  json.end_array();
  json.member_array("labels", labels);
  write_change(json, combination.change, combination.trial);
  json.end_object();
}

}  // namespace

Result<Advice> advise(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return job.error();
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> now = estimate(*job, options);
  if (!now) return now.error();
  const Trial trial = trial_of(now->report);
  const json document = *parse_json(text);
  const std::vector<Alternatives> choices = possible_changes(*job, document);
  Advice advice;
  advice.largest_micro_batch = largest_micro_batch(document);
  advice.longest_sequence = longest_sequence(*job, document);
  advice.fewest_gpus = fewest_gpus(*job, document);
  advice.frontier = frontier(*job, document);
  advice.changes = single_changes(document, trial, choices);
  if (trial.fits) {
    advice.beside = what_fits_beside(*job, document);
  } else {
    Selections selections(document, choices);
    advice.combinations = cheapest_combinations(selections);
  }
  advice.tokens_per_second = speed_of(document);
  if (advice.tokens_per_second) {  // else none of its changes is worth a second run
    const auto time = [&](auto& told) {
      for (auto& one : told) one.trial.tokens_per_second = speed_of(patched(document, json::parse(one.change)));
    };
    time(advice.changes);
    time(advice.combinations);
    time(advice.beside);
  }
  return advice;
}

std::string to_json(const Advice& advice) {
  JsonWriter out;
  out.begin_object();
  write_number(out, "largest_micro_batch", advice.largest_micro_batch);
  write_number(out, "longest_sequence", advice.longest_sequence);
  write_number(out, "fewest_gpus", advice.fewest_gpus);
  write_speed(out, advice.tokens_per_second);
  out.key("changes");
  out.begin_array();
  for (const TriedChange& tried : advice.changes) {
    out.begin_object();
    write_part(out, tried.label, tried.price, tried.costs);
    write_change(out, tried.change, tried.trial);
    out.member("saves", tried.saves);
    out.end_object();
  }
  out.end_array();
  out.key("combinations");
  out.begin_array();
  for (const Combination& combination : advice.combinations) write_combination(out, combination);
  out.end_array();
  out.key("beside");
  out.begin_array();
  for (const Spare& spare : advice.beside) {
    out.begin_object();
    out.member("label", spare.label);
    out.member("gains", spare.gains);
    write_change(out, spare.change, spare.trial);
    out.end_object();
  }
  out.end_array();
  out.key("frontier");
  out.begin_array();
  for (const Users& row : advice.frontier) {
    out.begin_object();
    out.member("context", row.context);
    out.member("users", row.users);
    out.end_object();
  }
  out.end_array();
  out.end_object();
  return out.take();
}

std::string advise_json(std::string_view job) {
  const Result<Advice> advice = advise(job);
  return advice ? to_json(*advice) : error_json(advice.error(), job);
}

}  // namespace oometer
