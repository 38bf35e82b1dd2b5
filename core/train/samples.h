#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/data.h"

namespace oometer {

/// To what the rows of a micro-batch are padded: its longest sample, a number of tokens, a multiple of one.
enum class Padding : std::uint8_t { longest, max, multiple };

/// How TRL packs samples into rows (trl 1.16, data_utils.py, pack_dataset).
enum class Packing : std::uint8_t {
  none,
  bfd,      ///< best-fit decreasing: samples stay whole, position_ids begin anew with each
  wrapped,  ///< one stream of tokens cut into rows
};

/// Labels that are not -100, before the shift. Padding and image tokens are never scored.
enum class ScoredKind : std::uint8_t { all, completion, tokens, fraction };
struct Scored {
  ScoredKind kind = ScoredKind::all;
  std::int64_t tokens = 0;  ///< of each sample
  double fraction = 1;      ///< of each sample

  /// Of a document of so many tokens, the first `masked` of which are an image's.
  std::int64_t of(std::int64_t length, std::int64_t masked) const;
  bool operator==(const Scored&) const = default;
};

/// So large a share of the samples has at most so many tokens. Between two of them lengths are spread evenly.
struct Quantile {
  double share = 0;
  std::int64_t tokens = 0;
  bool operator==(const Quantile&) const = default;
};

/// Trainer's train_sampling_strategy "group_by_length": samples of like length come together.
struct LengthGroups {
  std::int64_t size = 1;       ///< samples that a process takes in a step, of all its micro-batches
  std::int64_t processes = 1;  ///< which take micro-batches in turn; this one is the first
  bool operator==(const LengthGroups&) const = default;
};

/// What a run's micro-batches are made of, as the job says it.
struct SamplesConfig {
  using Lengths = std::vector<std::int64_t>;

  // At most one of these; none: every micro-batch is full, as DataConfig has it.
  std::vector<Lengths> batches;                        ///< tokens of each sample of each micro-batch, in turn
  std::optional<std::array<std::int64_t, 2>> uniform;  ///< the least and the most tokens of a sample
  std::vector<std::array<std::int64_t, 2>> histogram;  ///< tokens, and how many samples have as many
  std::vector<Quantile> quantiles;                     ///< from the shortest sample (share 0) to the longest (1)
  std::vector<Lengths> packed;                         ///< documents of each row, which are taken in turn

  std::int64_t seed = 0;                  ///< of the order in which samples of a distribution come
  std::optional<LengthGroups> by_length;  ///< samples of a distribution come in groups of like length
  Packing packing = Packing::none;        ///< of samples with lengths
  std::optional<std::int64_t>
      steps;  ///< of the optimizer; none: one pass over `batches` or `packed`, 8 of a distribution
  Padding padding = Padding::longest;
  std::int64_t multiple = 1;  ///< of Padding::multiple
  bool pads_left = false;
  Scored scored;
  std::optional<std::int64_t> max_length;  ///< longer samples are cut; none: they are not
  bool padding_free = false;               ///< of TRL's collator: a micro-batch is one row of all its samples
  bool are_pairs = false;                  ///< a sample is two rows, a chosen and a rejected answer to one prompt
  bool have_turns = false;                 ///< a trainer asks where prompts end

  /// The batches of an evaluation after the steps; empty: training's samples. None: data asks for no evaluation.
  std::optional<std::vector<Lengths>> evaluation;

  bool has_distribution() const { return uniform || !histogram.empty() || !quantiles.empty(); }
  void leave_distribution() {
    uniform.reset();
    histogram.clear();
    quantiles.clear();
    by_length.reset();
  }
  bool are_given() const { return !batches.empty() || has_distribution() || !packed.empty(); }
  std::int64_t steps_of(std::int64_t micro_batch_size, std::int64_t gradient_accumulation_steps) const;
  /// The least and the most tokens of a sample of the distribution.
  std::array<std::int64_t, 2> bounds() const;
  std::int64_t cut(std::int64_t length) const { return std::min(length, max_length.value_or(length)); }
  /// The most tokens of a sample, or of a row of documents.
  std::int64_t longest() const;
  bool operator==(const SamplesConfig&) const = default;
};

/// A full micro-batch as a collator makes it, with an attention_mask of ones, or as one row.
DataConfig collated(const SamplesConfig& samples, const DataConfig& full);

/// So many micro-batches in the order in which they come, made from `full`, a full one.
std::vector<DataConfig> micro_batches(const SamplesConfig& samples, const DataConfig& full, std::int64_t count);

/// TRL's pack_dataset: the documents of each row of `length` tokens. Of Packing::wrapped a row is one document.
std::vector<SamplesConfig::Lengths> pack(const SamplesConfig::Lengths& samples, std::int64_t length, Packing packing);

}  // namespace oometer
