#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "job/names.h"
#include "job/read.h"
#include "rounding.h"

namespace oometer {

using nlohmann::json;

namespace {

using Lengths = SamplesConfig::Lengths;

constexpr Range kLength{1, 1 << 24};
constexpr std::int64_t kMostLengths = 1 << 20;

bool is_length(const json& value) { return value.is_number_integer() && value >= kLength.min && value <= kLength.max; }

/// Lists of lengths: `what` says what the outer list is of.
std::vector<Lengths> read_lists(ConfigReader& reader, const char* key, const char* what) {
  std::vector<Lengths> lists;
  const json* given = reader.find(key);
  if (given == nullptr || given->is_null()) return lists;
  const auto refuse = [&](const std::string& found) {
    reader.fail(key, "wrong-type",
                "found " + found + "; expected " + what +
                    ", each a list of lengths of at least 1 token, for example [[1024, 700], [512, 512]]");
    return std::vector<Lengths>();
  };
  if (!given->is_array() || given->empty()) return refuse(describe(*given));
  std::int64_t count = 0;
  for (const json& list : *given) {
    if (!list.is_array() || list.empty()) return refuse(describe(list));
    Lengths lengths;
    for (const json& length : list) {
      if (!is_length(length) || ++count > kMostLengths) return refuse(describe(length));
      lengths.push_back(length.get<std::int64_t>());
    }
    lists.push_back(std::move(lengths));
  }
  return lists;
}

void read_uniform(ConfigReader& lengths, SamplesConfig& samples) {
  if (!lengths.has("uniform")) return;
  const std::vector<std::int64_t> bounds = lengths.integers("uniform", kLength);
  if (bounds.size() != 2 || bounds[0] > bounds[1])
    lengths.fail_found("uniform", "invalid", "expected [least, most], the least and the most tokens of a sample");
  else
    samples.uniform = {bounds[0], bounds[1]};
}

void read_histogram(ConfigReader& lengths, SamplesConfig& samples) {
  const json* given = lengths.find("histogram");
  if (given == nullptr || given->is_null()) return;
  std::int64_t total = 0;
  const auto is_bar = [&](const json& bar) {
    if (!bar.is_array() || bar.size() != 2 || !is_length(bar[0]) || !bar[1].is_number_integer()) return false;
    if (bar[1] < 0 || bar[1] > kMostLengths * 1024) return false;
    total += bar[1].get<std::int64_t>();
    return true;
  };
  if (!given->is_array() || !std::all_of(given->begin(), given->end(), is_bar) || total == 0) {
    lengths.fail_found("histogram", "invalid",
                       "expected [[length, count], ...]: lengths of at least 1 token, and how many samples have each, "
                       "at least one in all");
    return;
  }
  for (const json& bar : *given) samples.histogram.push_back({bar[0].get<std::int64_t>(), bar[1].get<std::int64_t>()});
}

void read_quantiles(ConfigReader& lengths, SamplesConfig& samples) {
  const json* given = lengths.find("quantiles");
  if (given == nullptr || given->is_null()) return;
  bool is_right = given->is_array() && given->size() >= 2;
  for (std::size_t i = 0; is_right && i < given->size(); ++i) {
    const json& pair = (*given)[i];
    is_right = pair.is_array() && pair.size() == 2 && pair[0].is_number() && is_length(pair[1]);
    if (!is_right) break;
    const Quantile quantile{pair[0].get<double>(), pair[1].get<std::int64_t>()};
    is_right = samples.quantiles.empty() ? quantile.share == 0
                                         : quantile.share > samples.quantiles.back().share &&
                                               quantile.tokens >= samples.quantiles.back().tokens;
    samples.quantiles.push_back(quantile);
  }
  if (is_right && samples.quantiles.back().share == 1) return;
  samples.quantiles.clear();
  lengths.fail_found(
      "quantiles", "invalid",
      "expected [[share, length], ...], from the shortest sample (share 0) to the longest (share 1), for "
      "example [[0, 50], [0.5, 400], [0.95, 1800], [1, 4096]]");
}

void read_lengths(ConfigReader lengths, SamplesConfig& samples) {
  const int ways = int{lengths.has("batches")} + int{lengths.has("uniform")} + int{lengths.has("histogram")} +
                   int{lengths.has("quantiles")};
  if (ways != 1)
    lengths.fail(
        "", "inconsistent",
        "found " + std::to_string(ways) + " of batches, uniform, histogram and quantiles; expected one of them");
  samples.batches = read_lists(lengths, "batches", "micro-batches");
  read_uniform(lengths, samples);
  read_histogram(lengths, samples);
  read_quantiles(lengths, samples);
  samples.seed = lengths.integer("seed", 0, non_negative);
  if (!samples.has_distribution() && lengths.has("seed"))
    lengths.fail_found("seed", "inconsistent",
                       "expected it with uniform, histogram or quantiles: batches have an order");
  if (lengths.boolean("grouped", false)) {
    samples.by_length.emplace();
    if (!samples.has_distribution())
      lengths.fail_found("grouped", "inconsistent",
                         "expected it with uniform, histogram or quantiles: batches have an order");
  }
  lengths.finish();
}

void read_packed(ConfigReader& data, SamplesConfig& samples) {
  if (!data.has("packed")) return;
  if (data.is_list("packed")) {
    samples.packed = read_lists(data, "packed", "rows of documents");
    if (samples.batches.empty() && !samples.has_distribution()) return;
    data.fail("packed", "inconsistent", "found rows of documents beside lengths; expected bfd or wrapped with lengths");
    return;
  }
  samples.packing = data.choice("packed", Packing::none, kPackings);
  if (samples.by_length)
    data.fail_found("packed", "not-modelled",
                    "packed rows in the order of their lengths are not supported yet; expected lengths that are not "
                    "grouped");
  if (data.ok() && samples.batches.empty() && !samples.has_distribution())
    data.fail_found("packed", "inconsistent", "expected data.lengths with it: the samples that are packed");
}

void read_padding(ConfigReader& data, SamplesConfig& samples) {
  const json* given = data.find("padding");
  if (given == nullptr || given->is_null()) return;
  if (given->is_number()) {
    samples.padding = Padding::multiple;
    samples.multiple = data.integer("padding", 1, {1, 1 << 20});
    return;
  }
  samples.padding = data.choice("padding", Padding::longest, kPaddings);
}

void read_scored(ConfigReader& data, SamplesConfig& samples) {
  if (!data.has("scored")) return;
  if (!data.is_object("scored")) {
    samples.scored.kind = data.choice("scored", ScoredKind::all, kScored);
    return;
  }
  ConfigReader scored = data.object("scored");
  if (scored.has("tokens") == scored.has("fraction"))
    scored.fail("", "inconsistent",
                R"(found neither or both of tokens and fraction; expected {"tokens": n} or {"fraction": x})");
  if (scored.has("tokens"))
    samples.scored = {ScoredKind::tokens, scored.integer("tokens", 1, kLength), 1};
  else
    samples.scored = {ScoredKind::fraction, 0, scored.number("fraction", 1, 0, 1)};
  scored.finish();
}

/// What goes with samples only.
void leave_out_without_samples(ConfigReader& data, const SamplesConfig& samples) {
  const auto refuse = [&](const char* key) {
    data.fail_found(key, "inconsistent",
                    "expected data.lengths or data.packed with it: without them all samples are full");
  };
  if (samples.steps) refuse("steps");
  if (samples.padding != Padding::longest) refuse("padding");
  if (samples.pads_left) refuse("padding_side");
}

}  // namespace

SamplesConfig read_samples(ConfigReader& data, const ModelTraits& traits) {
  SamplesConfig samples;
  if (data.has("lengths")) read_lengths(data.object("lengths"), samples);
  read_packed(data, samples);
  read_padding(data, samples);
  samples.pads_left = data.choice("padding_side", false, kSides);
  if (data.has("steps")) samples.steps = data.integer("steps", 2, {1, 1000});
  read_scored(data, samples);
  if (data.has("evaluation")) {
    ConfigReader evaluation = data.object("evaluation");
    ConfigReader lengths = evaluation.object("lengths");
    samples.evaluation = read_lists(lengths, "batches", "batches of an evaluation");
    lengths.finish();
    evaluation.finish();
    if (const auto refusal = traits.refusal(Feature::lengths); refusal && !samples.evaluation->empty())
      data.fail("evaluation", refusal->code, "found lengths of samples; " + refusal->why);
  }
  if (!data.ok()) return samples;
  if (!samples.are_given()) {
    leave_out_without_samples(data, samples);
    return samples;
  }
  const char* const key = data.has("lengths") ? "lengths" : "packed";
  if (const auto refusal = traits.refusal(Feature::lengths))
    data.fail(key, refusal->code, "found lengths of samples; " + refusal->why);
  if (!samples.packed.empty() || samples.packing == Packing::bfd)
    if (const auto refusal = traits.refusal(Feature::packing))
      data.fail("packed", refusal->code, "found packed samples; " + refusal->why);
  return samples;
}

void take_sizes(ConfigReader& data, const SamplesConfig& samples, std::optional<std::int64_t> length,
                std::int64_t usual_length, DataConfig& full) {
  if (!samples.batches.empty()) {
    std::int64_t most = 0;
    for (const Lengths& batch : samples.batches) {
      most = std::max<std::int64_t>(most, std::ssize(batch));
      if (data.has("micro_batch_size") && std::ssize(batch) != full.micro_batch_size &&
          samples.packing == Packing::none)
        data.fail_found("micro_batch_size", "inconsistent",
                        "expected " + std::to_string(batch.size()) +
                            ", the samples of a micro-batch in lengths, or "
                            "nothing");
    }
    if (!data.has("micro_batch_size") && samples.packing == Packing::none) full.micro_batch_size = most;
  }
  const std::int64_t longest = samples.longest();
  const bool to_usual = samples.padding == Padding::max || samples.packing != Packing::none;
  full.sequence_length = length.value_or(to_usual ? usual_length : round_up(longest, samples.multiple));
  if (longest > full.sequence_length && samples.packing == Packing::none)
    data.fail(data.has("packed") ? "packed" : "lengths", "inconsistent",
              "found " + std::to_string(longest) + " tokens; expected at most " + std::to_string(full.sequence_length) +
                  (length ? ", the sequence_length" : ", the model's usual length, or a sequence_length"));
  const std::int64_t image_tokens = full.tokens_of_images(),
                     audio_tokens = full.audios_per_sample * full.tokens_per_audio;
  std::int64_t shortest = samples.has_distribution() ? samples.bounds()[0] : longest;
  for (const Lengths& batch : samples.batches)
    shortest = std::min(shortest, *std::min_element(batch.begin(), batch.end()));
  const auto check = [&](std::int64_t tokens, const char* of_its) {
    if (shortest < tokens)
      data.fail("lengths", "inconsistent",
                "found a sample of " + std::to_string(shortest) + " tokens; it must hold the " +
                    std::to_string(tokens) + " tokens of its " + of_its);
  };
  check(image_tokens, "images");
  check(audio_tokens, "audio");
}

json write_samples(const SamplesConfig& samples) {
  json out = json::object();
  json lengths = json::object();
  if (!samples.batches.empty()) lengths["batches"] = samples.batches;
  if (samples.uniform) lengths["uniform"] = *samples.uniform;
  if (!samples.histogram.empty()) lengths["histogram"] = samples.histogram;
  for (const Quantile& quantile : samples.quantiles) lengths["quantiles"].push_back({quantile.share, quantile.tokens});
  if (samples.seed != 0) lengths["seed"] = samples.seed;
  if (samples.by_length) lengths["grouped"] = true;
  if (!lengths.empty()) out["lengths"] = std::move(lengths);
  if (samples.evaluation) {
    out["evaluation"] = json::object();
    if (!samples.evaluation->empty()) out["evaluation"]["lengths"]["batches"] = *samples.evaluation;
  }
  if (!samples.packed.empty()) out["packed"] = samples.packed;
  if (samples.packing != Packing::none) out["packed"] = name_of(samples.packing, kPackings);
  if (samples.steps) out["steps"] = *samples.steps;
  if (samples.padding == Padding::max) out["padding"] = "max";
  if (samples.padding == Padding::multiple) out["padding"] = samples.multiple;
  if (samples.pads_left) out["padding_side"] = "left";
  switch (samples.scored.kind) {
    case ScoredKind::all:
      break;
    case ScoredKind::completion:
      out["scored"] = "completion";
      break;
    case ScoredKind::tokens:
      out["scored"]["tokens"] = samples.scored.tokens;
      break;
    case ScoredKind::fraction:
      out["scored"]["fraction"] = samples.scored.fraction;
      break;
  }
  return out;
}

}  // namespace oometer
