#include "job/timed.h"

#include <algorithm>
#include <cmath>

#include "job/order_spread.h"
#include "job/parse.h"
#include "report/json.h"
#include "report/json_writer.h"
#include "report/work.h"
#include "time/interval.h"
#include "time/step_time.h"

namespace oometer {

namespace {

constexpr std::int64_t kNode = 8;  ///< GPUs whose links are the data sheet's

/// Why a job has no time; "" where it has one.
std::string untimed(const Job& job, const GpuSpeed* gpu) {
  if (job.gpu.id.empty()) return "the job describes its GPU by its memory only; name one of `oometer presets`";
  if (gpu == nullptr) return "no kernel of the architecture of " + job.gpu.name + " was measured";
  const ParallelConfig& parallel = job.parallel;
  const bool offloads =
      (parallel.strategy == Strategy::deepspeed &&
       (parallel.deepspeed.offloads_optimizer() || parallel.deepspeed.offload_param != OffloadDevice::none)) ||
      (parallel.shards_parameters() && parallel.fsdp.cpu_offload) || job.training.save_on_cpu != SavesOn::device ||
      job.training.optimizer.paged;
  if (offloads) return "transfers to and from host memory are not timed";
  if (job.task == Task::inference) {
    const CacheImplementation cache = job.inference.cache.implementation;
    if (cache != CacheImplementation::dynamic_ && cache != CacheImplementation::static_)
      return "only generations with a dynamic or a static cache are timed";
  }
  if (parallel.world_size() > kNode)
    return "links between nodes are not timed: at most " + std::to_string(kNode) + " GPUs";
  return {};
}

/// Tokens of one replica's optimizer step, padding too; images or rows where the model has no text.
double tokens_of(const Job& job) {
  const std::int64_t micro_steps = job.training.gradient_accumulation_steps;
  const auto of = [](const DataConfig& data) {
    return static_cast<double>(data.micro_batch_size) *
           static_cast<double>(std::max<std::int64_t>(1, data.sequence_length));
  };
  if (!job.samples.are_given()) return of(job.data) * static_cast<double>(micro_steps);
  const std::int64_t steps = job.samples.steps_of(job.data.micro_batch_size, micro_steps);
  const std::vector<DataConfig> batches = micro_batches(job.samples, job.data, steps * micro_steps);
  double tokens = 0;
  std::int64_t counted = 0;
  for (std::size_t i = static_cast<std::size_t>(steps > 1 ? micro_steps : 0); i < batches.size(); ++i, ++counted)
    tokens += of(batches[i]);
  return counted == 0 ? 0 : tokens / static_cast<double>(counted) * static_cast<double>(micro_steps);
}

/// The text of a number that is not negative, to so many decimals: the same on every machine.
std::string decimal(double number, int decimals) {
  std::int64_t scale = 1;
  for (int i = 0; i < decimals; ++i) scale *= 10;
  const std::int64_t whole = std::llround(std::min(number, 1e12) * static_cast<double>(scale));
  std::string rest = std::to_string(whole % scale + scale).substr(1);
  return std::to_string(whole / scale) + "." + rest;
}

constexpr int kMicroseconds = 6;

void write_time(JsonWriter& json, const Job& job, const StepTime& time, const TimeInterval& interval) {
  const auto seconds = [&](const char* key, double value) {
    json.key(key);
    json.raw(decimal(value, kMicroseconds));
  };
  json.begin_object();
  seconds("step", time.seconds);
  seconds("low", time.seconds * interval.low);
  seconds("high", time.seconds * interval.high);
  json.member("basis", interval.basis);
  const auto replicas = static_cast<double>(job.parallel.world_size());
  const bool infers = job.task == Task::inference;
  double tokens = infers ? static_cast<double>(job.data.micro_batch_size * job.inference.new_tokens) : tokens_of(job);
  json.key("tokens_per_second");
  json.raw(decimal(tokens * replicas / time.seconds, 1));
  const auto utilization = [&](const char* key, std::int64_t flops) {
    json.key(key);
    json.raw(decimal(static_cast<double>(flops) / (time.seconds * time.peak_flops), 4));
  };
  utilization("mfu", time.work.model);
  utilization("hfu", time.work.hardware);
  if (infers) {
    seconds("prefill", time.prefill);
    if (job.inference.new_tokens > 1)
      seconds("per_token", time.decode / static_cast<double>(job.inference.new_tokens - 1));
  }
  json.key("flops");
  json.begin_object();
  json.member("model", time.work.model);
  json.member("executed", time.work.executed);
  json.member("hardware", time.work.hardware);
  json.end_object();
  json.member("bytes_moved", time.work.read + time.work.written);
  json.member("bytes_sent", time.work.sent);
  json.key("by_kind");
  json.begin_object();
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind)
    if (time.by_kind[kind] > 0) seconds(work_kind_name(static_cast<WorkKind>(kind)), time.by_kind[kind]);
  if (time.idle > 0) seconds("idle", time.idle);
  json.end_object();
  json.end_object();
}

/// The member's value, and what is to be noted about it.
std::string time_json(const Job& job, const Estimate& estimate, std::vector<std::string>& notes) {
  const GpuSpeed* gpu = find_speed(job.gpu.id);
  std::string reason = untimed(job, gpu);
  StepTime time;
  if (reason.empty()) {
    const bool ddp = job.parallel.strategy == Strategy::ddp;
    time = step_time(estimate.simulation.log, *gpu, job.training.gradient_accumulation_steps, ddp);
    if (time.peak_flops == 0)
      reason = job.gpu.name + " has no units for products of this dtype, and what it does instead was not measured";
  }
  if (!reason.empty()) {
    notes.push_back("No time: " + reason + ".");
    return "null";
  }
  const ChipRates rates = rates_of(*gpu);
  const bool single = time.dtype == DType::float32;
  const TimeInterval interval =
      time_interval({.is_that_chip = gpu->is_that_chip,
                     .products_known = single ? rates.is_known.single : rates.is_known.half,
                     .unmeasured = time.unmeasured / time.seconds,
                     .kernel_seconds = time.seconds / static_cast<double>(std::max<std::int64_t>(1, time.work.kernels)),
                     .over_pcie = gpu->fabric == Fabric::pcie ? time.on_links / time.seconds : 0,
                     .generates = time.decode > 0});
  if (!gpu->is_that_chip)
    notes.push_back("Time: no kernel of this GPU was measured; it is taken to reach of its data sheet what the " +
                    std::string(gpu->chip) + " reaches of its own.");
  if (time.unmeasured > 0.05 * time.seconds)
    notes.push_back("Time: kernels without measured kin take " +
                    std::to_string(std::lround(100 * time.unmeasured / time.seconds)) + " % of it (" +
                    kUnmeasuredKernels + ").");
  JsonWriter json;
  write_time(json, job, time, interval);
  return json.take();
}

}  // namespace

std::string timed_estimate_json(std::string_view text, const EstimateOptions& options) {
  const Result<Job> job = parse_job(text);
  if (!job) return error_json(job.error(), text);
  Result<Estimate> result = estimate(*job, options.report);
  if (!result) return error_json(result.error(), text);
  if (options.orders) result->input.spread = order_spread(*job);
  const std::string time = time_json(*job, *result, result->input.notes);
  std::string report = to_json(result->report, result->simulation.log, result->input, {options.full_tree});
  report.pop_back();  // the closing brace
  report += ",\"time\":";
  return report + time + "}";
}

}  // namespace oometer
