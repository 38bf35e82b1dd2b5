#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "advice/advice.h"
#include "job/timed.h"
#include "result.h"

/// "How do I lay this out?": ways to run the same training on the GPUs that the job has, the fastest that fits first.
namespace oometer {

/// The job's model, samples an optimizer step and GPUs are kept, and so is what it computes; how it is spread over the
/// GPUs, what is checkpointed, and into how many micro-batches a step is cut differ.
struct Plan {
  std::string layout;  ///< "DDP", "ZeRO-2", "FSDP2"; "" of one GPU
  bool checkpoints = false;
  std::int64_t micro_batch_size = 1, gradient_accumulation_steps = 1;
  std::string change;  ///< a merge patch (RFC 7386) on the job as given, JSON
  Trial trial;
  std::int64_t headroom = 0;  ///< bytes; negative: what is missing
  JobTime time;
};

/// Those that fit first, the fastest of them first; then those that do not, by what is missing. Plans that the core
/// refuses, or of which it knows no time, are left out. The errors are parse_job's, and one where no plan has a time.
Result<std::vector<Plan>> plans(std::string_view job);

/// The same as JSON, or {"error": {...}}:
///
///     {"plans": [{"layout", "activation_checkpointing", "micro_batch_size", "gradient_accumulation_steps", "verdict",
///                 "peak", "headroom", "step", "low", "high", "tokens_per_second", "change"}]}
///
/// `step`, `low` and `high` are seconds; an interval holds for a plan beside a measurement, and is wider than what two
/// plans of one job differ in error. Never throws.
std::string plans_json(std::string_view job);

}  // namespace oometer
