#include "advice/sharing.h"

#include <algorithm>
#include <cmath>

#include "advice/changes.h"
#include "advice/trial.h"
#include "config/reader.h"
#include "cuda/replay.h"
#include "job/estimate.h"
#include "job/parse.h"
#include "job/timed.h"
#include "report/json_writer.h"

namespace oometer {

using nlohmann::json;

namespace {

/// Of the slowdown of two jobs that keep a GPU busy, which would be 2: nine of ten of 2,134 that Gavel published (1,067
/// pairs under CUDA MPS on K80, P100 and V100, stanford-futuredata/gavel c4fa400,
/// scheduler/simulation_throughputs.json) lie between 1.13 and 2.9; their median is 1.72.
constexpr double kLowOfPairs = 1.13 / 2, kHighOfPairs = 2.9 / 2;

/// What a job holds that takes a share of the GPU at once, as vLLM does for its pool; 0: it grows as it needs.
std::int64_t taken_at_once(const Job& job) {
  if (job.task != Task::inference || job.inference.cache.implementation != CacheImplementation::paged) return 0;
  return static_cast<std::int64_t>(static_cast<double>(job.gpu.usable_bytes) *
                                   job.inference.cache.gpu_memory_utilization);
}

Result<Tenant> tenant_of(const Job& job) {
  ReportOptions options;
  options.attribution = false;
  const Result<Estimate> alone = estimate(job, options);
  if (!alone) return alone.error();
  const Report& report = alone->report;
  Tenant tenant;
  tenant.alone = report.verdict;
  tenant.outside_allocator = report.outside_allocator;
  const std::int64_t at_once = taken_at_once(job);
  tenant.total = std::max(report.total, at_once);
  tenant.high = std::max(report.high, at_once);
  tenant.least = tenant.total;
  if (at_once == 0 && report.fits) {
    const Log& log = alone->simulation.log;
    const Replay unlimited = replay(log, alone->input.allocator);
    const std::int64_t limit = least_limit(log, alone->input.allocator, unlimited, unlimited.peak_reserved);
    tenant.least = std::min(
        tenant.total, static_cast<std::int64_t>(std::ceil(static_cast<double>(limit) * job.calibration.reserved)) +
                          report.outside_allocator);
  }
  const JobTime time = job_time(job, alone->simulation.log);
  if (time.unknown.empty() && time.step.seconds > 0) {
    tenant.step = time.step.seconds;
    tenant.busy = 1 - time.step.idle / time.step.seconds;
  }
  return tenant;
}

template <typename Of>
std::int64_t sum(const std::vector<Tenant>& tenants, const Of& of) {
  std::int64_t total = 0;
  for (const Tenant& tenant : tenants) total += of(tenant);
  return total;
}

/// Each may have come to hold all it ever does: what is left is enough for any one of them to go on.
bool each_runs_beside(const std::vector<Tenant>& tenants, std::int64_t total, std::int64_t usable) {
  return std::all_of(tenants.begin(), tenants.end(),
                     [&](const Tenant& one) { return total - one.total + one.least <= usable; });
}

/// A fraction of the device for each, of which its allocator takes no more: what is over is divided equally.
std::vector<double> fractions(const std::vector<Tenant>& tenants, std::int64_t usable) {
  const std::int64_t least = sum(tenants, [](const Tenant& one) { return one.least; });
  if (least > usable) return {};
  const auto spare = static_cast<double>(usable - least) / static_cast<double>(tenants.size());
  std::vector<double> all;
  for (const Tenant& one : tenants) {
    const double its = (static_cast<double>(one.least - one.outside_allocator) + spare) / static_cast<double>(usable);
    all.push_back(std::floor(its * 1000) / 1000);
    if (all.back() * static_cast<double>(usable) < static_cast<double>(one.least - one.outside_allocator)) return {};
  }
  return all;
}

/// The GPU divides its time: a job has what the others leave, at least an equal share.
void slow_down(std::vector<Tenant>& tenants) {
  const auto n = static_cast<double>(tenants.size());
  double busy = 0;
  for (const Tenant& one : tenants) {
    if (!one.busy) return;
    busy += *one.busy;
  }
  for (Tenant& one : tenants) {
    const double share = std::max(1 / n, 1 - (busy - *one.busy));
    const double factor = std::max(1.0, *one.busy / share);
    one.slowdown = Slowdown{factor, std::max(1.0, factor * kLowOfPairs), factor * kHighOfPairs};
  }
}

}  // namespace

Result<Sharing> share(std::span<const std::string> jobs, std::string_view gpu) {
  Sharing sharing;
  if (jobs.size() < 2) return Error{"invalid", "", "expected two jobs or more"};
  std::string id(gpu);
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const auto of_job = [i](Error error) {
      error.pointer.insert(0, std::string("/").append(std::to_string(i)));
      return error;
    };
    Result<Job> job = parse_job(jobs[i]);
    if (!job) return of_job(job.error());
    if (id.empty()) id = job->gpu.id;
    if (id.empty())
      return of_job({"invalid", "/gpu", "expected a GPU of the list by its name, on which all of them run"});
    if (job->gpu.id != id) {
      json there = *parse_json(jobs[i]);
      set_gpu(there, id);
      job = parse_job(text_of(there));
      if (!job) return of_job(job.error());
    }
    sharing.gpu = job->gpu;
    Result<Tenant> tenant = tenant_of(*job);
    if (!tenant) return of_job(tenant.error());
    sharing.tenants.push_back(std::move(*tenant));
    if (taken_at_once(*job) > 0)
      sharing.notes.push_back(std::string("job ").append(std::to_string(i + 1)) +
                              " takes gpu_memory_utilization of the GPU when it starts, whatever it needs");
  }
  const std::int64_t usable = sharing.gpu.usable_bytes;
  std::vector<Tenant>& tenants = sharing.tenants;
  sharing.total = sum(tenants, [](const Tenant& one) { return one.total; });
  sharing.headroom = usable - sharing.total;
  const bool alone =
      std::all_of(tenants.begin(), tenants.end(), [](const Tenant& one) { return one.alone != Verdict::does_not_fit; });
  if (alone && sum(tenants, [](const Tenant& one) { return one.high; }) <= usable)
    sharing.verdict = Verdict::fits;
  else if (alone && each_runs_beside(tenants, sharing.total, usable))
    sharing.verdict = Verdict::tight;
  if (alone && sharing.total > usable) sharing.memory_fractions = fractions(tenants, usable);
  slow_down(tenants);
  if (!tenants.front().slowdown)
    sharing.notes.emplace_back("the time of some job is not known: nor is what each loses");
  if (sharing.gpu.allocator_limit)
    sharing.notes.emplace_back("of this GPU only what an allocator may take is known: contexts are counted in it");
  return sharing;
}

namespace {

void write_number(JsonWriter& writer, const char* key, const std::optional<double>& number, int decimals) {
  if (number) return write_decimal(writer, key, *number, decimals);
  writer.key(key);
  writer.null();
}

void write_tenant(JsonWriter& writer, const Tenant& tenant) {
  writer.begin_object();
  writer.member("alone", verdict_name(tenant.alone));
  writer.member("total", tenant.total);
  writer.member("least", tenant.least);
  writer.member("outside_allocator", tenant.outside_allocator);
  write_number(writer, "step", tenant.step, 6);
  write_number(writer, "busy", tenant.busy, 3);
  writer.key("slowdown");
  if (tenant.slowdown) {
    writer.begin_object();
    write_decimal(writer, "factor", tenant.slowdown->factor, 2);
    write_decimal(writer, "low", tenant.slowdown->low, 2);
    write_decimal(writer, "high", tenant.slowdown->high, 2);
    writer.end_object();
  } else {
    writer.null();
  }
  writer.end_object();
}

}  // namespace

std::string share_json(std::span<const std::string> jobs, std::string_view gpu) {
  const Result<Sharing> sharing = share(jobs, gpu);
  if (!sharing) return error_json(sharing.error());
  JsonWriter writer;
  writer.begin_object();
  writer.key("gpu");
  writer.begin_object();
  writer.member("id", sharing->gpu.id);
  writer.member("name", sharing->gpu.name);
  writer.member("usable_bytes", sharing->gpu.usable_bytes);
  writer.end_object();
  writer.member("verdict", verdict_name(sharing->verdict));
  writer.member("total", sharing->total);
  writer.member("headroom", sharing->headroom);
  writer.key("jobs");
  writer.begin_array();
  for (const Tenant& tenant : sharing->tenants) write_tenant(writer, tenant);
  writer.end_array();
  writer.key("memory_fractions");
  if (sharing->memory_fractions.empty()) {
    writer.null();
  } else {
    writer.begin_array();
    for (const double fraction : sharing->memory_fractions) writer.raw(text_of(json(fraction)));
    writer.end_array();
  }
  writer.member_array("notes", sharing->notes);
  writer.end_object();
  return writer.take();
}

}  // namespace oometer
