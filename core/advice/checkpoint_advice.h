#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "advice/checkpoint_plan.h"
#include "job/job.h"
#include "result.h"

namespace oometer {

/// What checkpointing could do for one stack of blocks, whatever the job itself does.
struct CheckpointAdvice {
  std::string stack;                     ///< "model.language_model.layers"
  std::vector<ChainBlock> chain;         ///< the simulated run's bytes
  CheckpointPlan least;                  ///< the least memory
  std::vector<CheckpointPlan> frontier;  ///< empty where the stack is longer than `kLongestFrontier`
};

/// The frontier's time grows with the third power of the blocks.
inline constexpr std::size_t kLongestFrontier = 256;

/// Runs the job once with every block kept and once with every block checkpointed, and plans each stack that keeps
/// anything for backward. The errors are `estimate`'s.
Result<std::vector<CheckpointAdvice>> advise_checkpoints(const Job& job);

/// The same of a job as JSON, as JSON: [{"stack", "blocks", "least": PLAN, "frontier": [PLAN...]}], or {"error":
/// {...}}. A PLAN is {"peak", "recomputed", "segments": [[begin, end, recomputed]...], "total", "step", "low", "high",
/// "tokens_per_second", "change"}: `change` is a merge patch (RFC 7386) on the job that runs it, `total` the report's
/// bytes of the whole job then, `step`, `low` and `high` the seconds of its step. Both are null, and what follows
/// `step` is left out, where the job so changed is refused, or has no time.
std::string checkpoint_advice_json(std::string_view job);

}  // namespace oometer
