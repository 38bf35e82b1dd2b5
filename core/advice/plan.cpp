#include "advice/plan.h"

#include <cmath>
#include <optional>
#include <utility>

#include "advice/parallel_changes.h"
#include "advice/trial.h"
#include "config/patch.h"
#include "config/reader.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "report/json_writer.h"
#include "sort_by.h"

namespace oometer {

using nlohmann::json;

namespace {

void set_training(json& job, const char* key, json value) {
  json& training = job["training"];
  if (!training.is_object()) training = json::object();
  training[key] = std::move(value);
}

/// The micro-batches and their number that make the job's step, halving and doubling.
std::vector<std::pair<std::int64_t, std::int64_t>> cuts(const Job& job) {
  std::int64_t batch = job.data.micro_batch_size, steps = job.training.gradient_accumulation_steps;
  if (job.samples.are_given() || job.model.config.traits().fixed_batch != 0) return {{batch, steps}};
  while (steps % 2 == 0) {
    batch *= 2;
    steps /= 2;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> all{{batch, steps}};
  while (batch % 2 == 0) all.emplace_back(batch /= 2, steps *= 2);
  return all;
}

/// None where the core refuses it, or knows no time.
std::optional<Plan> tried(const json& document, const json& changed) {
  const Result<Job> job = parse_job(text_of(changed));
  if (!job) return std::nullopt;
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> result = estimate(*job, options);
  if (!result) return std::nullopt;
  Plan plan;
  plan.time = job_time(*job, result->simulation.log);
  if (!plan.time.unknown.empty()) return std::nullopt;
  plan.checkpoints = job->training.checkpointing.mode != CheckpointMode::none;
  plan.micro_batch_size = job->data.micro_batch_size;
  plan.gradient_accumulation_steps = job->training.gradient_accumulation_steps;
  plan.change = text_of(patch_between(document, changed));
  plan.trial = trial_of(result->report);
  plan.headroom = result->report.headroom;
  return plan;
}

}  // namespace

Result<std::vector<Plan>> plans(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return job.error();
  if (job->task != Task::train)
    return Error{"unsupported", "/task", "found inference; expected train: what is planned is a training"};
  const json document = *parse_json(text);
  std::vector<Plan> found;
  for (const Change& layout : layouts(*job)) {
    for (const bool checkpoints : {false, true}) {
      for (const auto& [batch, steps] : cuts(*job)) {
        json changed = document;
        layout.make(changed);
        const bool does = job->training.checkpointing.mode != CheckpointMode::none;
        if (checkpoints != does)
          set_training(changed, "activation_checkpointing", checkpoints ? "non-reentrant" : "none");
        if (batch != job->data.micro_batch_size) changed["data"]["micro_batch_size"] = batch;
        if (steps != job->training.gradient_accumulation_steps)
          set_training(changed, "gradient_accumulation_steps", steps);
        std::optional<Plan> plan = tried(document, changed);
        if (!plan) continue;
        plan->layout = layout.label;
        found.push_back(std::move(*plan));
      }
    }
  }
  if (found.empty()) {
    const Result<Estimate> own = estimate(*job);
    if (!own) return own.error();
    const std::string unknown = job_time(*job, own->simulation.log).unknown;
    return Error{"unsupported", "", "no plan has a time: " + (unknown.empty() ? "none is accepted" : unknown)};
  }
  sort_by(found, [](const Plan& plan) { return plan.trial.fits ? std::llround(1e6 * plan.time.step.seconds) : 0; });
  sort_by(found, [](const Plan& plan) { return plan.trial.fits ? 0 : -plan.headroom; });
  return found;
}

std::string plans_json(std::string_view text) {
  const Result<std::vector<Plan>> found = plans(text);
  if (!found) return error_json(found.error(), text);
  JsonWriter writer;
  writer.begin_object();
  writer.key("plans");
  writer.begin_array();
  for (const Plan& plan : *found) {
    writer.begin_object();
    writer.member("layout", plan.layout);
    writer.member("activation_checkpointing", plan.checkpoints);
    writer.member("micro_batch_size", plan.micro_batch_size);
    writer.member("gradient_accumulation_steps", plan.gradient_accumulation_steps);
    writer.member("verdict", verdict_name(plan.trial.verdict));
    writer.member("peak", plan.trial.total);
    writer.member("headroom", plan.headroom);
    write_seconds(writer, plan.time);
    writer.key("change");
    writer.raw(plan.change);
    writer.end_object();
  }
  writer.end_array();
  writer.end_object();
  return writer.take();
}

}  // namespace oometer
