#include "advice/largest.h"

#include <algorithm>

#include "advice/last_that_fits.h"
#include "advice/trial.h"

namespace oometer {

using nlohmann::json;

namespace {

/// The last number of [least, most] with which the job that `with` makes of it fits.
template <typename With>
std::optional<std::int64_t> last_of(std::int64_t least, std::int64_t most, const With& with) {
  LastThatFits search(least, most);
  while (const std::optional<std::int64_t> number = search.next()) search.learn(*number, try_job(with(*number)));
  return search.found();
}

/// The same, of the job with a patch for each number.
template <typename Patch>
std::optional<std::int64_t> last_that_fits(const json& document, std::int64_t least, std::int64_t most,
                                           const Patch& patch) {
  const auto on_one_rank = [&](std::int64_t n) { return patched(document, patch(n)); };
  const std::optional<std::int64_t> last = last_of(least, most, on_one_rank);
  if (!last) return last;
  const json at_last = on_one_rank(*last);
  const auto parallel = at_last.find("parallel");
  if (parallel == at_last.end() || parallel->contains("rank")) return last;
  // Ranks differ a little, and the likely fullest need not be the fullest.
  const auto on_every_rank = [&](std::int64_t n) {
    json job = on_one_rank(n);
    job["parallel"]["rank"] = "all";
    return job;
  };
  return last_of(least, *last, on_every_rank);
}

json at(const char* section, const char* key, std::int64_t value) {
  json patch = json::object();
  patch[section][key] = value;
  return patch;
}

}  // namespace

std::optional<std::int64_t> largest_micro_batch(const json& document, std::int64_t most) {
  return last_that_fits(document, 1, most, [](std::int64_t n) { return at("data", "micro_batch_size", n); });
}

std::vector<Users> frontier(const Job& job, const json& document) {
  std::vector<Users> rows;
  const ModelTraits& traits = job.model.config.traits();
  if (job.task != Task::inference || !traits.generates) return rows;
  const std::int64_t positions = traits.text.max_position_embeddings;
  const std::int64_t said = job.inference.cached_tokens(0) + 1;  // but the first prompt
  const std::int64_t least = std::max<std::int64_t>(1, job.data.tokens_of_images());
  std::int64_t most = kMostMicroBatch;
  for (std::int64_t context = 1024; context <= positions && most > 0; context *= 2) {
    if (context - said < least) continue;
    // A longer context never fits more.
    most = largest_micro_batch(patched(document, at("data", "sequence_length", context - said)), most).value_or(0);
    rows.push_back({context, most});
  }
  return rows;
}

std::optional<std::int64_t> longest_sequence(const Job& job, const json& document) {
  const ModelTraits& traits = job.model.config.traits();
  if (!traits.takes_text) return std::nullopt;
  const std::int64_t images = job.data.tokens_of_images();
  const std::int64_t most =
      traits.max_sequence_length != 0 ? traits.max_sequence_length : kMostLength * traits.text.max_position_embeddings;
  return last_that_fits(document, std::max<std::int64_t>(images, 1), most,
                        [](std::int64_t n) { return at("data", "sequence_length", n); });
}

std::optional<std::int64_t> fewest_gpus(const Job& job, const json& document) {
  if (job.parallel.strategy != Strategy::deepspeed) return std::nullopt;
  // More GPUs hold smaller shares: the search counts down from the bound.
  const auto fewer = [](std::int64_t n) {
    json patch = at("parallel", "data", kMostGpus - n);
    patch["gpu"]["count"] = nullptr;
    patch["parallel"]["rank"] = nullptr;
    return patch;
  };
  const std::optional<std::int64_t> spared = last_that_fits(document, 0, kMostGpus - 1, fewer);
  if (!spared) return std::nullopt;
  return kMostGpus - *spared;
}

}  // namespace oometer
