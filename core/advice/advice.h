#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/report.h"
#include "result.h"

/// What would make a job fit. Every figure is that of a job that was really executed, with the change in it.
namespace oometer {

/// What one really executed job says.
struct Trial {
  Verdict verdict = Verdict::does_not_fit;
  bool fits = false;       ///< the run does not die; tight counts
  std::int64_t total = 0;  ///< peak reserved and what lies outside the allocator, bytes
};

struct TriedChange {
  std::string label;   ///< plain words
  std::string costs;   ///< plain words
  std::string change;  ///< a merge patch (RFC 7386) on the job as given, JSON
  Trial trial;
  std::int64_t saves = 0;  ///< bytes of the total; a larger GPU may save none
};

struct Combination {
  std::vector<std::string> labels;
  std::string change;  ///< of all of them, as above
  Trial trial;
};

/// How many sequences of how many tokens, prompts and answers together, fit at once. The number of either was run.
struct Users {
  std::int64_t context = 0;
  std::int64_t users = 0;  ///< 0: not even one
};

struct Advice {
  std::optional<std::int64_t> largest_micro_batch;
  std::optional<std::int64_t> longest_sequence;
  std::optional<std::int64_t> fewest_gpus;
  std::vector<Users> frontier;       ///< of inference
  std::vector<TriedChange> changes;  ///< single ones that help, the one that saves most first
  /// The cheapest changes that together make the job fit, in the order of possible_changes; none where it fits already
  /// or nothing here is enough. Without any one of them it would not fit.
  std::optional<Combination> combination;
};

/// Answers for a job (JSON, version 1). The errors are parse_job's and estimate's.
Result<Advice> advise(std::string_view job);

/// The same as JSON: {"largest_micro_batch", "longest_sequence", "fewest_gpus", "changes": [{"label", "change",
/// "peak", "saves", "verdict", "costs"}], "combination": {"labels", "change", "peak", "verdict"} or null, "frontier":
/// [{"context", "users"}]}, or {"error": {...}}. `change` is a merge patch (RFC 7386) on the job as given; sizes are
/// bytes of the total. Never throws.
std::string advise_json(std::string_view job);

}  // namespace oometer
