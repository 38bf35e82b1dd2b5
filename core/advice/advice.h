#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "job/settings/remedy.h"
#include "report/report.h"
#include "result.h"

/// What would make a job fit. Every figure is that of a job that was really executed, with the change in it.
namespace oometer {

/// What one really executed job says.
struct Trial {
  Verdict verdict = Verdict::does_not_fit;
  bool fits = false;                        ///< the run does not die; tight counts
  std::int64_t total = 0;                   ///< peak reserved and what lies outside the allocator, bytes
  std::int64_t headroom = 0;                ///< bytes of the GPU beyond `total`; negative: what is missing
  std::optional<double> tokens_per_second;  ///< as JobTime (job/timed.h) has it; none: not known, or not asked for
};

struct TriedChange {
  std::string label;  ///< plain words
  std::string costs;  ///< plain words
  Price price = Price::nothing;
  std::string change;  ///< a merge patch (RFC 7386) on the job as given, JSON
  Trial trial;
  std::int64_t saves = 0;  ///< bytes of the total; a larger GPU may save none
};

/// Changes that together make a job fit. Without any one of them it would not.
struct Combination {
  struct Part {
    std::string label, costs;
    Price price = Price::nothing;
  };
  std::vector<Part> parts;
  Price price = Price::nothing;  ///< the dearest part's
  std::string change;            ///< of all of them, as above
  Trial trial;
};

/// What a job that fits could do without, or have instead, on the same GPUs or on less.
struct Spare {
  std::string label;  ///< "Without activation checkpointing"
  std::string gains;  ///< plain words
  std::string change;
  Trial trial;
};

/// How many sequences of how many tokens, prompts and answers together, fit at once. The number of either was run.
struct Users {
  std::int64_t context = 0;
  std::int64_t users = 0;  ///< 0: not even one
};

struct Advice {
  std::optional<double> tokens_per_second;  ///< of the job as it is
  std::optional<std::int64_t> largest_micro_batch;
  std::optional<std::int64_t> longest_sequence;
  std::optional<std::int64_t> fewest_gpus;
  std::vector<Users> frontier;       ///< of inference
  std::vector<TriedChange> changes;  ///< single ones that help, the one that saves most first
  /// At most three, the cheapest first (cheapest_combinations); empty where the job fits already or nothing here is
  /// enough.
  std::vector<Combination> combinations;
  std::vector<Spare> beside;  ///< of a job that fits
};

/// Answers for a job (JSON, version 1). The errors are parse_job's and estimate's.
Result<Advice> advise(std::string_view job);

/// The same as JSON, or {"error": {...}}:
///
///     {"largest_micro_batch", "longest_sequence", "fewest_gpus", "tokens_per_second": numbers or null,
///      "changes": [{"label", "price", "costs", "change", "peak", "verdict", "tokens_per_second", "saves"}],
///      "combinations": [{"price", "parts": [{"label", "price", "costs"}], "labels", "change", "peak", "verdict",
///                        "tokens_per_second"}],
///      "beside": [{"label", "gains", "change", "peak", "verdict", "tokens_per_second"}],
///      "frontier": [{"context", "users"}]}
///
/// `price` is "nothing", "time", "numerics", "training" or "hardware": what one pays with, of a combination its dearest
/// part's; `costs` and `gains` are plain words. `change` is a merge patch (RFC 7386) on the job as given, of a
/// combination that of all its parts; sizes are bytes of the total. `tokens_per_second` is null where no time is
/// known. `combinations` is empty where the job fits,
/// `beside` where it does not. Never throws.
std::string advise_json(std::string_view job);

/// Of an answer that there is already.
std::string to_json(const Advice& advice);

}  // namespace oometer
