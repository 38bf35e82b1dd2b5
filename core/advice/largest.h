#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "advice/advice.h"
#include "job/job.h"

/// How far a setting can go. A number that is given was run and fits (or is tight), and the next one was run and does
/// not, or is beyond the bound.
namespace oometer {

inline constexpr std::int64_t kMostMicroBatch = 1 << 20;  ///< a job's own bound
inline constexpr std::int64_t kMostLength = 4;            ///< times the model's max_position_embeddings
inline constexpr std::int64_t kMostGpus = 512;

/// None where not even one sample fits. At most `most`.
std::optional<std::int64_t> largest_micro_batch(const nlohmann::json& document, std::int64_t most = kMostMicroBatch);

/// Of a job that infers, for contexts of 1,024 tokens and each power of two above, to as many positions as the model
/// has, once beyond what fits. Empty for other jobs. Contexts that do not hold the answer are left out.
std::vector<Users> frontier(const Job& job, const nlohmann::json& document);

/// None where the model reads no text, or the shortest sequence does not fit.
std::optional<std::int64_t> longest_sequence(const Job& job, const nlohmann::json& document);

/// None where the strategy shards nothing, or no number of GPUs helps.
std::optional<std::int64_t> fewest_gpus(const Job& job, const nlohmann::json& document);

}  // namespace oometer
