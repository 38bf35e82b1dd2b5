#include "job/timed.h"

#include <algorithm>
#include <cmath>

#include "job/order_spread.h"
#include "job/parse.h"
#include "job/simulate.h"
#include "report/json.h"
#include "report/json_writer.h"
#include "report/work.h"
#include "time/lanes.h"

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
      job.training.checkpointing.offload || job.training.loop.activation_offloading || job.training.optimizer.paged;
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

Device device_of(const Job& job) { return {job.gpu.major, job.gpu.minor, static_cast<int>(job.gpu.sm_count)}; }

bool overlaps_reduction(const Job& job) { return job.parallel.strategy == Strategy::ddp; }

/// Tokens of one replica's optimizer step, or forward, padding too; samples where the model reads no text.
double tokens_of(const Job& job) {
  const std::int64_t micro_steps = job.task == Task::train ? job.training.gradient_accumulation_steps : 1;
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
  const std::int64_t whole = std::llround(std::min(number * static_cast<double>(scale), 1e18));
  std::string rest = std::to_string(whole % scale + scale).substr(1);
  return std::to_string(whole / scale) + "." + rest;
}

constexpr int kMicroseconds = 6, kNanos = 9;

/// Energy and price of what takes so many hours of GPUs.
void write_cost(JsonWriter& writer, const CostConfig& cost, double gpu_hours) {
  if (cost.watts) write_decimal(writer, "energy_kwh", *cost.watts / 1000 * gpu_hours, kNanos);
  if (cost.price_per_hour) write_decimal(writer, "price", *cost.price_per_hour * gpu_hours, kNanos);
}

void write_costs(JsonWriter& writer, const Job& job, const JobTime& time) {
  constexpr double kHour = 3600, kDay = 24 * kHour, kMillion = 1e6;
  const CostConfig& cost = job.cost;
  const auto gpus = static_cast<double>(job.parallel.world_size());
  const double of_token = gpus / kHour / time.tokens_per_second;
  write_cost(writer, cost, gpus / kHour * time.step.seconds);
  if (cost.watts || cost.price_per_hour) {
    writer.key("per_million_tokens");
    writer.begin_object();
    write_cost(writer, cost, kMillion * of_token);
    writer.end_object();
  }
  if (cost.tokens && job.task == Task::train) {
    const auto tokens = static_cast<double>(*cost.tokens);
    writer.key("training");
    writer.begin_object();
    writer.member("tokens", *cost.tokens);
    write_decimal(writer, "days", tokens / time.tokens_per_second / kDay, kMicroseconds);
    write_cost(writer, cost, tokens * of_token);
    writer.end_object();
  }
}

void write_utilization(JsonWriter& writer, const Utilization& its) {
  writer.key("utilization");
  writer.begin_object();
  write_decimal(writer, "gputl", its.active, 4);
  write_decimal(writer, "gract", its.active, 4);
  write_decimal(writer, "smact", its.smact, 4);
  write_decimal(writer, "smocc", its.smocc, 4);
  write_decimal(writer, "tenso", its.tenso, 4);
  write_decimal(writer, "drama", its.drama, 4);
  writer.end_object();
}

void write_time(JsonWriter& writer, const Job& job, const JobTime& time) {
  const StepTime& step = time.step;
  writer.begin_object();
  write_seconds(writer, time);
  writer.member("basis", time.interval.basis);
  write_decimal(writer, "mfu", static_cast<double>(step.work.model) / (step.seconds * step.peak_flops), 4);
  write_decimal(writer, "hfu", static_cast<double>(step.work.hardware) / (step.seconds * step.peak_flops), 4);
  if (job.task == Task::inference) {
    write_decimal(writer, "prefill", step.prefill, kMicroseconds);
    if (step.decode > 0 && job.inference.new_tokens > 1)
      write_decimal(writer, "per_token", step.decode / static_cast<double>(job.inference.new_tokens - 1),
                    kMicroseconds);
  }
  writer.key("flops");
  writer.begin_object();
  writer.member("model", step.work.model);
  writer.member("executed", step.work.executed);
  writer.member("hardware", step.work.hardware);
  writer.end_object();
  writer.member("bytes_moved", step.work.read + step.work.written);
  writer.member("bytes_sent", step.work.sent);
  writer.key("by_kind");
  writer.begin_object();
  for (std::size_t kind = 0; kind < kWorkKinds; ++kind)
    if (step.by_kind[kind] > 0)
      write_decimal(writer, work_kind_name(static_cast<WorkKind>(kind)), step.by_kind[kind], kMicroseconds);
  if (step.idle > 0) write_decimal(writer, "idle", step.idle, kMicroseconds);
  writer.end_object();
  write_utilization(writer, step.utilization);
  write_costs(writer, job, time);
  writer.end_object();
}

constexpr std::size_t kLanes = 150;  ///< stretches: a few pixels each

void write_lanes(JsonWriter& writer, const Job& job, const Log& log, const StepTime& step) {
  const std::vector<Lane> stretches =
      lanes(log, *find_speed(job.gpu.id), device_of(job), step, overlaps_reduction(job), kLanes);
  writer.key("lanes");
  writer.begin_array();
  for (const Lane& lane : stretches) {
    writer.begin_object();
    writer.member("phase", phase_name(lane.phase));
    const auto share = [&](const char* key, double seconds) { write_decimal(writer, key, seconds / lane.seconds, 3); };
    write_decimal(writer, "seconds", lane.seconds, kNanos);
    share("smact", lane.multiprocessors);
    share("tenso", lane.tensor_cores);
    share("drama", lane.memory);
    share("communication", lane.communication);
    share("idle", lane.idle);
    writer.end_object();
  }
  writer.end_array();
}

/// The member's value, and what is to be noted about it.
std::string time_member(const Job& job, const JobTime& time, std::vector<std::string>& notes) {
  if (!time.unknown.empty()) {
    notes.push_back("No time: " + time.unknown + ".");
    return "null";
  }
  notes.insert(notes.end(), time.notes.begin(), time.notes.end());
  JsonWriter writer;
  write_time(writer, job, time);
  return writer.take();
}

}  // namespace

void write_decimal(JsonWriter& writer, const char* key, double value, int decimals) {
  writer.key(key);
  writer.raw(decimal(value, decimals));
}

void write_seconds(JsonWriter& writer, const JobTime& time) {
  const double seconds = time.step.seconds;
  write_decimal(writer, "step", seconds, kMicroseconds);
  write_decimal(writer, "low", seconds * time.interval.low, kMicroseconds);
  write_decimal(writer, "high", seconds * time.interval.high, kMicroseconds);
  write_decimal(writer, "tokens_per_second", time.tokens_per_second, 1);
}

JobTime job_time(const Job& job, const Log& log) {
  JobTime time;
  const GpuSpeed* gpu = find_speed(job.gpu.id);
  time.unknown = untimed(job, gpu);
  if (!time.unknown.empty()) return time;
  StepTime& step = time.step;
  step = step_time(log, *gpu, device_of(job), job.training.gradient_accumulation_steps, overlaps_reduction(job));
  if (step.peak_flops == 0) {
    time.unknown = job.gpu.name + " has no units for products of this dtype, and what it does instead was not measured";
    return time;
  }
  const ChipRates rates = rates_of(*gpu);
  time.interval =
      time_interval({.is_that_chip = gpu->is_that_chip,
                     .products_known = step.dtype == DType::float32 ? rates.is_known.single : rates.is_known.half,
                     .unmeasured = step.unmeasured / step.seconds,
                     .kernel_seconds = step.seconds / static_cast<double>(std::max<std::int64_t>(1, step.work.kernels)),
                     .over_pcie = gpu->fabric == Fabric::pcie ? step.on_links / step.seconds : 0,
                     .generates = step.decode > 0});
  const double tokens =
      step.decode > 0 ? static_cast<double>(job.data.micro_batch_size) * static_cast<double>(job.inference.new_tokens)
                      : tokens_of(job);
  time.tokens_per_second = tokens * static_cast<double>(job.parallel.world_size()) / step.seconds;
  if (!gpu->is_that_chip)
    time.notes.push_back("Time: no kernel of this GPU was measured; it is taken to reach of its data sheet what the " +
                         std::string(gpu->chip) + " reaches of its own.");
  if (const double share = step.unmeasured / step.seconds; share > 0.05)
    time.notes.push_back("Time: kernels without measured kin take " + std::to_string(std::lround(100 * share)) +
                         " % of it (" + kUnmeasuredKernels + ").");
  return time;
}

std::string timed_estimate_json(std::string_view text, const EstimateOptions& options) {
  const Result<Job> job = parse_job(text);
  if (!job) return error_json(job.error(), text);
  Result<Estimate> result = estimate(*job, options.report);
  if (!result) return error_json(result.error(), text);
  if (options.orders) result->input.spread = order_spread(*job);
  const std::string time = time_member(*job, job_time(*job, result->simulation.log), result->input.notes);
  std::string report = to_json(result->report, result->simulation.log, result->input, {options.full_tree});
  report.pop_back();  // the closing brace
  report += ",\"time\":";
  return report + time + "}";
}

std::string time_json(std::string_view text) {
  const Result<Job> job = parse_job(text);
  if (!job) return error_json(job.error());
  const Simulation run = simulate(*job, resolve_behaviours(job->runtime));
  if (run.refusal) return error_json(*run.refusal);
  const JobTime time = job_time(*job, run.log);
  std::vector<std::string> notes;
  JsonWriter writer;
  writer.begin_object();
  writer.key("time");
  writer.raw(time_member(*job, time, notes));
  writer.member_array("notes", notes);
  if (time.unknown.empty()) write_lanes(writer, *job, run.log, time.step);
  writer.end_object();
  return writer.take();
}

}  // namespace oometer
