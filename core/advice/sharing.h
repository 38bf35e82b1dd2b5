#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cuda/outside.h"
#include "report/report.h"
#include "result.h"

/// "Do these fit on one GPU together?": jobs of several processes on one device, each with an allocator and a context
/// of its own.
namespace oometer {

/// How many times as long a job's step takes beside the others; 1: as alone.
struct Slowdown {
  double factor = 1;
  double low = 1, high = 1;  ///< nine of ten published pairs lie between them
};

/// One of the jobs. Bytes are of the device, with what lies outside the allocator.
struct Tenant {
  Verdict alone = Verdict::does_not_fit;
  std::int64_t total = 0;  ///< what it comes to hold: PyTorch keeps what it has once reserved
  std::int64_t high = 0;   ///< the upper end of its interval
  std::int64_t least = 0;  ///< with which it still runs, to 16 MiB: its cache is freed before it gives up
  std::int64_t outside_allocator = 0;
  std::optional<double> step;        ///< seconds, alone; none: oometer does not know its time
  std::optional<double> busy;        ///< share of `step` in which the GPU does not wait for the host
  std::optional<Slowdown> slowdown;  ///< none: some job's time is not known
};

/// The answer. `fits`: whatever the order in which the jobs grow, none of them dies.
struct Sharing {
  Gpu gpu;
  Verdict verdict =
      Verdict::does_not_fit;    ///< tight: a job frees its cache first, or an interval's upper end does not fit
  std::vector<Tenant> tenants;  ///< as they were given
  std::int64_t total = 0;       ///< of all, bytes
  std::int64_t headroom = 0;    ///< of the GPU beyond `total`; negative: what is missing
  /// Where that is no fit, but would be one with torch.cuda.set_per_process_memory_fraction: its argument for each job.
  std::vector<double> memory_fractions;
  std::vector<std::string> notes;
};

/// Of jobs (JSON, version 1) on `gpu`, one of the catalogue; "": the first one's. Of a job on several GPUs it is the
/// rank that its report is of. The errors are parse_job's and estimate's, "/0/data/..." is of the first job.
Result<Sharing> share(std::span<const std::string> jobs, std::string_view gpu);

/// The same as JSON, or {"error": {...}}:
///
///     {"gpu": {"id", "name", "usable_bytes"}, "verdict", "total", "headroom",
///      "jobs": [{"alone", "total", "least", "outside_allocator", "step", "busy", "slowdown": {"factor", "low",
///      "high"}}], "memory_fractions": [number] or null, "notes": [texts]}
///
/// Sizes are bytes; `step` is seconds, `busy` a share of it; what is not known is null. Never throws.
std::string share_json(std::span<const std::string> jobs, std::string_view gpu);

}  // namespace oometer
