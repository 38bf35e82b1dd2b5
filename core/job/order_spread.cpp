#include "job/order_spread.h"

#include <algorithm>
#include <limits>

#include "job/estimate.h"
#include "job/parse.h"
#include "job/simulate.h"
#include "report/json.h"
#include "report/json_writer.h"

namespace oometer {

namespace {

/// Orders of the samples that are tried, and how many steps they may have together.
constexpr std::int64_t kOrders = 200, kSteps = 3200;

}  // namespace

OrderSpread order_spread(const Job& job) {
  OrderSpread spread;
  if (!job.samples.has_distribution()) return spread;
  const Behaviours behaviours = resolve_behaviours(job.runtime);
  const auto peak_of = [&](const Job& run) {
    return replay(simulate(run, behaviours).log, allocator_options(behaviours, run.runtime)).peak;
  };
  const std::int64_t steps = job.samples.steps_of(job.data.micro_batch_size, job.training.gradient_accumulation_steps) *
                             job.training.gradient_accumulation_steps;
  spread.low = std::numeric_limits<std::int64_t>::max();
  spread.orders = std::clamp<std::int64_t>(kSteps / steps, 8, kOrders);
  Job other = job;
  for (std::int64_t i = 0; i < spread.orders; ++i) {
    ++other.samples.seed;
    const std::int64_t reserved = peak_of(other).reserved;
    spread.low = std::min(spread.low, reserved);
    spread.high = std::max(spread.high, reserved);
  }
  const std::int64_t longest = std::min(job.samples.longest(), job.data.sequence_length);
  other.samples.batches = {SamplesConfig::Lengths(static_cast<std::size_t>(job.data.micro_batch_size), longest)};
  other.samples.leave_distribution();
  other.samples.steps.reset();
  spread.worst_batch = peak_of(other).allocated;
  return spread;
}

std::string order_spread_json(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return error_json(job.error());
  if (const Simulation run = simulate(*job, resolve_behaviours(job->runtime)); run.refusal)
    return error_json(*run.refusal);
  JsonWriter writer;
  writer.begin_object();
  write_spread(writer, order_spread(*job));
  writer.end_object();
  return writer.take();
}

}  // namespace oometer
