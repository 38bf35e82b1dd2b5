#include "advice/gpus.h"

#include <utility>

#include "advice/changes.h"
#include "advice/largest.h"
#include "advice/last_that_fits.h"
#include "advice/parallel_changes.h"
#include "advice/trial.h"
#include "config/patch.h"
#include "config/reader.h"
#include "job/catalogue.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "report/json_writer.h"
#include "sort_by.h"

namespace oometer {

using nlohmann::json;

namespace {

constexpr std::int64_t kMostOfAKind = 64;

Result<Report> run(const Job& job) {
  ReportOptions options;
  options.attribution = false;
  Result<Estimate> result = estimate(job, options);
  if (!result) return result.error();
  return std::move(result->report);
}

std::optional<std::int64_t> largest_micro_batch_of(const Job& job, const Trial& now) {
  if (job.model.config.traits().fixed_batch != 0)
    return now.fits ? std::optional(job.data.micro_batch_size) : std::nullopt;
  LastThatFits search(1, kMostMicroBatch);
  search.learn(job.data.micro_batch_size, now);
  while (const std::optional<std::int64_t> batch = search.next()) {
    Job changed = job;
    changed.data.micro_batch_size = *batch;
    const Result<Report> report = run(changed);
    search.learn(*batch, report ? std::optional(trial_of(*report)) : std::nullopt);
  }
  return search.found();
}

/// The fewest GPUs that are enough: spread as the job is, else sharded more. `fits`: it does on as many as it has.
/// `document` is the job, `given` what it is a change of.
std::optional<Needed> needed(const Job& job, const json& document, const json& given, bool fits) {
  const auto on = [&](std::int64_t gpus, const Change* way) {
    json changed = document;
    if (gpus != job.parallel.data) set_gpus(changed, gpus);
    if (way) way->make(changed);
    return changed;
  };
  const auto answer = [&](std::int64_t gpus, const Change* way) {
    return Needed{gpus, way ? way->label : "", text_of(patch_between(given, on(gpus, way)))};
  };
  const auto fewest = [&](const Change* way) -> std::optional<Needed> {
    const auto are_enough = [&](std::int64_t gpus) {
      const std::optional<Trial> trial = try_job(on(gpus, way));
      return trial && trial->fits;
    };
    if (!are_enough(kMostOfAKind)) return std::nullopt;
    std::int64_t gpus = 1;
    while (gpus < kMostOfAKind && !are_enough(gpus)) gpus *= 2;
    return answer(gpus, way);
  };
  if (job.task == Task::inference) return fits ? std::optional(answer(job.parallel.data, nullptr)) : std::nullopt;
  const bool shards = job.parallel.strategy != Strategy::none && job.parallel.strategy != Strategy::ddp;
  if (!shards && fits) return answer(1, nullptr);
  if (shards)
    if (std::optional<Needed> own = fewest(nullptr)) return own;
  for (const Change& way : more_sharding(job))
    if (std::optional<Needed> more = fewest(&way)) return more;
  return std::nullopt;
}

void write_optional(JsonWriter& writer, const char* key, const std::optional<std::int64_t>& number) {
  writer.key(key);
  if (number)
    writer.value(*number);
  else
    writer.null();
}

void write_row(JsonWriter& writer, const GpuRow& row) {
  writer.begin_object();
  writer.member("id", row.gpu.id);
  writer.member("name", row.gpu.name);
  writer.member("vendor", row.gpu.vendor == Vendor::nvidia ? "nvidia" : "amd");
  writer.member("usable_bytes", row.gpu.usable_bytes);
  writer.member("calibrated", row.gpu.calibrated);
  writer.key("verdict");
  if (row.trial)
    writer.value(verdict_name(row.trial->verdict));
  else
    writer.null();
  write_optional(writer, "peak", row.trial ? std::optional(row.trial->total) : std::nullopt);
  write_optional(writer, "headroom", row.trial ? std::optional(row.trial->headroom) : std::nullopt);
  writer.member("refused", row.refused);
  write_optional(writer, "largest_micro_batch", row.largest_micro_batch);
  writer.key("needed");
  if (row.needed) {
    writer.begin_object();
    writer.member("gpus", row.needed->gpus);
    writer.member("label", row.needed->label);
    writer.key("change");
    writer.raw(row.needed->change);
    writer.end_object();
  } else {
    writer.null();
  }
  writer.end_object();
}

GpuRow row_of(const Job& job, const json& document, const json& given) {
  GpuRow row;
  row.gpu = job.gpu;
  const Result<Report> report = run(job);
  if (!report) {
    row.refused = report.error().message;
    return row;
  }
  row.trial = trial_of(*report);
  row.largest_micro_batch = largest_micro_batch_of(job, *row.trial);
  row.needed = needed(job, document, given, report->fits);
  return row;
}

}  // namespace

Result<GpuRow> on_its_gpu(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return job.error();
  const json document = *parse_json(text);
  return row_of(*job, document, document);
}

Result<std::vector<GpuRow>> on_every_gpu(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return job.error();
  const json given = *parse_json(text);
  std::vector<GpuRow> rows;
  for (const Gpu& gpu : gpu_catalogue()) {
    json document = given;
    set_gpu(document, gpu.id);
    if (const Result<Job> there = parse_job(text_of(document))) {
      rows.push_back(row_of(*there, document, given));
    } else {
      rows.emplace_back().gpu = gpu;
      rows.back().refused = there.error().message;
    }
  }
  sort_by(rows, [](const GpuRow& row) { return row.gpu.usable_bytes; });
  sort_by(rows, [](const GpuRow& row) { return row.needed ? row.needed->gpus : 2 * kMostOfAKind; });
  sort_by(rows, [](const GpuRow& row) { return row.trial && row.trial->fits ? 0 : 1; });
  return rows;
}

std::string gpus_json(std::string_view job) {
  const Result<std::vector<GpuRow>> rows = on_every_gpu(job);
  if (!rows) return error_json(rows.error(), job);
  JsonWriter writer;
  writer.begin_object();
  writer.key("gpus");
  writer.begin_array();
  for (const GpuRow& row : *rows) write_row(writer, row);
  writer.end_array();
  writer.end_object();
  return writer.take();
}

std::string gpu_json(std::string_view job) {
  const Result<GpuRow> row = on_its_gpu(job);
  if (!row) return error_json(row.error());
  JsonWriter writer;
  write_row(writer, *row);
  return writer.take();
}

}  // namespace oometer
