#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "advice/advice.h"
#include "cuda/outside.h"
#include "result.h"

/// "On which GPU?": a job on each GPU of the catalogue.
namespace oometer {

/// How many GPUs of a kind a job needs.
struct Needed {
  std::int64_t gpus = 1;
  std::string label;   ///< "" where only their number changes; else how the job is spread over them: "ZeRO-3"
  std::string change;  ///< a merge patch (RFC 7386) on the job as given, JSON: the GPU too
};

struct GpuRow {
  Gpu gpu;
  std::optional<Trial> trial;                       ///< none: refused there
  std::string refused;                              ///< why, for people
  std::optional<std::int64_t> largest_micro_batch;  ///< everything else unchanged; none: not even one sample fits
  std::optional<Needed> needed;                     ///< the fewest that are enough, of 1, 2, 4 ... 64; none: more
};

/// The job's own GPU. The errors are parse_job's: what the run itself refuses, the row says.
Result<GpuRow> on_its_gpu(std::string_view job);

/// Every GPU of the catalogue: those on which the job fits first, then those of which fewest are needed; among these
/// the one with the least memory first. The errors are parse_job's.
Result<std::vector<GpuRow>> on_every_gpu(std::string_view job);

/// The same as JSON, or {"error": {...}}:
///
///     {"gpus": [{"id", "name", "vendor", "usable_bytes", "calibrated", "verdict", "peak", "headroom", "refused",
///                "largest_micro_batch", "needed": {"gpus", "label", "change"} or null}]}
///
/// `verdict` is null where the job is refused on that GPU, and `refused` then says why (else ""). `peak` and `headroom`
/// are bytes of the total. `change` is a merge patch (RFC 7386) on the job as given, which takes that GPU in the number
/// that is needed; `label` says how the job is spread over them, where that changes. Never throws.
std::string gpus_json(std::string_view job);

/// One such row, of the job's own GPU, or {"error": {...}}: what may be asked of many GPUs side by side. Never throws.
std::string gpu_json(std::string_view job);

}  // namespace oometer
