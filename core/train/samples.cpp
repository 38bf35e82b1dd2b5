#include "train/samples.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "rounding.h"

namespace oometer {

namespace {

using Lengths = SamplesConfig::Lengths;

/// What `map(batched=True)` hands pack_dataset at once.
constexpr std::size_t kPackedAtOnce = 1000;

/// Samples of a distribution, one after another in a random order: of a histogram each once, then again from the start,
/// as an epoch's permutation has them.
class Draw {
 public:
  explicit Draw(const SamplesConfig& samples) : samples_(samples), random_(static_cast<std::uint64_t>(samples.seed)) {
    begin_epoch();
  }

  std::int64_t operator()() {
    if (samples_.uniform) return (*samples_.uniform)[0] + below((*samples_.uniform)[1] - (*samples_.uniform)[0] + 1);
    if (!samples_.quantiles.empty()) return of_quantiles();
    if (left() == 0) begin_epoch();
    std::int64_t at = below(total_--);
    for (auto& [length, count] : left_) {
      if (at < count) {
        --count;
        return length;
      }
      at -= count;
    }
    return samples_.bounds()[1];
  }

  /// Samples of the epoch that have not come; of an endless data set, more than anybody takes.
  std::int64_t left() const { return samples_.histogram.empty() ? std::numeric_limits<std::int64_t>::max() : total_; }

  Lengths take(std::size_t count) {
    Lengths lengths(count);
    for (std::int64_t& length : lengths) length = (*this)();
    return lengths;
  }

  void begin_epoch() {
    left_ = samples_.histogram;
    for (const auto& [length, count] : left_) total_ += count;
  }

  /// Fisher and Yates' shuffle; std::shuffle's order is up to the library.
  void shuffle(std::vector<Lengths>& rows) {
    for (std::size_t i = rows.size(); i > 1; --i)
      std::swap(rows[i - 1], rows[static_cast<std::size_t>(below(static_cast<std::int64_t>(i)))]);
  }

 private:
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(n)); }

  std::int64_t of_quantiles() {
    constexpr std::int64_t kSteps = std::int64_t{1} << 32;
    const double share = static_cast<double>(below(kSteps)) / static_cast<double>(kSteps);
    std::size_t next = 1;
    while (next + 1 < samples_.quantiles.size() && samples_.quantiles[next].share <= share) ++next;
    const Quantile &low = samples_.quantiles[next - 1], &high = samples_.quantiles[next];
    const double part = (share - low.share) / (high.share - low.share);
    return low.tokens + std::llround(part * static_cast<double>(high.tokens - low.tokens));
  }

  const SamplesConfig& samples_;
  std::mt19937_64 random_;
  std::vector<std::array<std::int64_t, 2>> left_;  ///< of the epoch
  std::int64_t total_ = 0;
};

/// LengthGroupedSampler's order (transformers 5.23, trainer_pt_utils.py, get_length_grouped_indices): in each
/// mega-batch of random samples the longest come first, and the epoch begins with the longest of all, which changes
/// places with the first one.
class GroupedDraw {
 public:
  GroupedDraw(const SamplesConfig& samples, const LengthGroups& groups)
      : draw_(samples), size_(groups.size), longest_(samples.bounds()[1]) {}

  Lengths take(std::size_t count) {
    Lengths lengths;
    for (; lengths.size() < count; ready_.pop_front()) {
      if (ready_.empty()) make_mega_batch();
      lengths.push_back(ready_.front());
    }
    return lengths;
  }

 private:
  void make_mega_batch() {
    constexpr std::int64_t kMostGroups = 50, kLeastMegaBatches = 4;
    const bool is_first = draw_.left() == 0 || groups_ == 0;
    if (draw_.left() == 0) draw_.begin_epoch();
    if (is_first) groups_ = std::clamp<std::int64_t>(draw_.left() / size_ / kLeastMegaBatches, 1, kMostGroups);
    Lengths lengths = draw_.take(static_cast<std::size_t>(std::min(groups_ * size_, draw_.left())));
    std::sort(lengths.begin(), lengths.end(), std::greater<>());
    if (is_first)
      owed_ = std::exchange(lengths.front(), longest_);
    else if (owed_ && lengths.front() == longest_)
      lengths.front() = *std::exchange(owed_, std::nullopt);
    if (owed_ == longest_) owed_.reset();  // it was the first already
    ready_.assign(lengths.begin(), lengths.end());
  }

  Draw draw_;
  std::int64_t size_, longest_;
  std::int64_t groups_ = 0;           ///< of a mega-batch
  std::optional<std::int64_t> owed_;  ///< what stood where the longest of all stands
  std::deque<std::int64_t> ready_;
};

std::int64_t total_of(const Lengths& lengths) {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
}

/// Scored tokens of a sample that is cut at its end, and whose first token nothing predicts where `loses_first`.
std::int64_t scored_of(const SamplesConfig& samples, const DataConfig& data, std::int64_t length, bool loses_first) {
  const std::int64_t kept = samples.cut(length);
  std::int64_t scored = samples.scored.of(length, data.tokens_of_images());
  if (samples.scored.kind == ScoredKind::completion) scored = std::max<std::int64_t>(0, scored - (length - kept));
  return std::min(scored, kept - (loses_first ? 1 : 0));
}

/// Of samples that are padded: what processors and collators give.
DataConfig padded(const SamplesConfig& samples, const DataConfig& full, const Lengths& lengths) {
  DataConfig data = full;
  data.micro_batch_size = std::ssize(lengths);
  const std::int64_t longest = samples.cut(*std::max_element(lengths.begin(), lengths.end()));
  if (samples.padding != Padding::max) data.sequence_length = round_up(longest, samples.multiple);
  data.rows = {{}, true, false};
  data.scored = 0;
  for (const std::int64_t length : lengths) {
    data.rows.documents.push_back({samples.cut(length)});
    data.scored += scored_of(samples, data, length, !samples.pads_left || length >= data.sequence_length);
  }
  return data;
}

/// Rows of documents with position_ids, without a mask.
DataConfig of_documents(const DataConfig& full, std::vector<Lengths> rows) {
  DataConfig data = full;
  data.micro_batch_size = std::ssize(rows);
  data.sequence_length = 0;
  for (const Lengths& row : rows) data.sequence_length = std::max(data.sequence_length, total_of(row));
  data.rows = {std::move(rows), false, true};
  return data;
}

/// DataCollatorForLanguageModeling (trl 1.16, sft_trainer.py) with padding_free: one row of all.
DataConfig padding_free(const SamplesConfig& samples, const DataConfig& full, const std::vector<Lengths>& rows) {
  Lengths all;
  std::int64_t scored = 0;
  for (const Lengths& row : rows)
    for (const std::int64_t length : row) {
      all.push_back(samples.cut(length));
      scored += scored_of(samples, full, length, true);
    }
  DataConfig data = of_documents(full, {std::move(all)});
  data.rows.has_bounds = samples.padding_free;
  data.scored = scored;
  return data;
}

/// Samples as the run's collator joins them.
DataConfig joined(const SamplesConfig& samples, const DataConfig& full, const Lengths& given) {
  Lengths lengths = given;
  if (samples.are_pairs) lengths.insert(lengths.end(), given.begin(), given.end());
  DataConfig data = samples.padding_free ? padding_free(samples, full, {lengths}) : padded(samples, full, lengths);
  if (samples.have_turns)
    for (const std::int64_t length : given) {
      const std::int64_t answer = samples.scored.of(length, 0);
      data.turns.push_back({length - answer, answer});
    }
  return data;
}

/// Rows in turn.
class Turn {
 public:
  explicit Turn(std::vector<Lengths> rows) : rows_(std::move(rows)) {}
  std::vector<Lengths> take(std::int64_t count) {
    std::vector<Lengths> taken;
    for (std::int64_t i = 0; i < count; ++i) taken.push_back(rows_[next_++ % rows_.size()]);
    return taken;
  }

 private:
  std::vector<Lengths> rows_;
  std::size_t next_ = 0;
};

std::vector<Lengths> packed_rows(const SamplesConfig& samples, const DataConfig& full) {
  if (!samples.has_distribution()) {
    Lengths all;
    for (const Lengths& batch : samples.batches) all.insert(all.end(), batch.begin(), batch.end());
    return pack(all, full.sequence_length, samples.packing);
  }
  Draw draw(samples);
  std::vector<Lengths> rows = pack(draw.take(kPackedAtOnce), full.sequence_length, samples.packing);
  draw.shuffle(rows);
  return rows;
}

}  // namespace

std::int64_t Scored::of(std::int64_t length, std::int64_t masked) const {
  switch (kind) {
    case ScoredKind::all:
      break;
    case ScoredKind::completion:
      return length - std::max(length / 2, std::min(masked, length));
    case ScoredKind::tokens:
      return std::min(tokens, length - std::min(masked, length));
    case ScoredKind::fraction:
      return std::min(static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(length))),
                      length - std::min(masked, length));
  }
  return length - std::min(masked, length);
}

std::int64_t SamplesConfig::steps_of(std::int64_t micro_batch_size, std::int64_t gradient_accumulation_steps) const {
  constexpr std::int64_t kOfDistribution = 8, kLeast = 2;
  if (steps) return *steps;
  if (has_distribution()) return kOfDistribution;
  if (packed.empty()) return std::max(kLeast, divide_up(std::ssize(batches), gradient_accumulation_steps));
  return std::max(kLeast, divide_up(std::ssize(packed), micro_batch_size * gradient_accumulation_steps));
}

std::array<std::int64_t, 2> SamplesConfig::bounds() const {
  if (uniform) return *uniform;
  if (!quantiles.empty()) return {quantiles.front().tokens, quantiles.back().tokens};
  std::array<std::int64_t, 2> bounds{0, 0};
  for (const auto& [length, count] : histogram) {
    if (count == 0) continue;
    bounds = {bounds[0] == 0 ? length : std::min(bounds[0], length), std::max(bounds[1], length)};
  }
  return bounds;
}

std::int64_t SamplesConfig::longest() const {
  std::int64_t most = bounds()[1];
  for (const Lengths& batch : batches) most = std::max(most, *std::max_element(batch.begin(), batch.end()));
  most = cut(most);
  for (const Lengths& row : packed) most = std::max(most, total_of(row));
  return most;
}

DataConfig collated(const SamplesConfig& samples, const DataConfig& full) {
  return joined(samples, full, Lengths(static_cast<std::size_t>(full.micro_batch_size), full.sequence_length));
}

std::vector<DataConfig> micro_batches(const SamplesConfig& samples, const DataConfig& full, std::int64_t count) {
  std::vector<DataConfig> out;
  const std::int64_t size = full.micro_batch_size;
  if (!samples.packed.empty()) {
    Turn turn(samples.packed);
    while (std::ssize(out) < count) {
      const std::vector<Lengths> rows = turn.take(size);
      out.push_back(samples.padding_free ? padding_free(samples, full, rows) : of_documents(full, rows));
    }
  } else if (samples.packing != Packing::none) {
    Turn turn(packed_rows(samples, full));
    while (std::ssize(out) < count) {
      const std::vector<Lengths> rows = turn.take(size);
      if (samples.packing == Packing::bfd) {
        out.push_back(padding_free(samples, full, rows));
        continue;
      }
      Lengths lengths;
      for (const Lengths& row : rows) lengths.push_back(total_of(row));
      out.push_back(padded(samples, full, lengths));
    }
  } else if (!samples.batches.empty()) {
    for (std::size_t i = 0; std::ssize(out) < count; ++i)
      out.push_back(joined(samples, full, samples.batches[i % samples.batches.size()]));
  } else if (samples.by_length) {
    GroupedDraw draw(samples, *samples.by_length);
    while (std::ssize(out) < count) {
      out.push_back(joined(samples, full, draw.take(static_cast<std::size_t>(size))));
      draw.take(static_cast<std::size_t>(size * (samples.by_length->processes - 1)));  // the other processes'
    }
  } else {
    Draw draw(samples);
    while (std::ssize(out) < count) out.push_back(joined(samples, full, draw.take(static_cast<std::size_t>(size))));
  }
  return out;
}

std::vector<Lengths> pack(const Lengths& samples, std::int64_t length, Packing packing) {
  std::vector<Lengths> rows;
  if (packing == Packing::wrapped) {  // _pack_wrapped
    for (std::int64_t left = total_of(samples); left > 0; left -= length) rows.push_back({std::min(left, length)});
    return rows;
  }
  // _pack_bfd, on_seq_length_overflow="truncate": each goes where the least room is left that is enough.
  Lengths sorted = samples;
  for (std::int64_t& sample : sorted) sample = std::min(sample, length);
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  std::map<std::int64_t, std::deque<std::size_t>> rows_with_room;
  for (const std::int64_t sample : sorted) {
    auto found = rows_with_room.lower_bound(sample);
    std::size_t row = rows.size();
    std::int64_t room = length;
    if (found == rows_with_room.end()) {
      rows.emplace_back();
    } else {
      room = found->first;
      row = found->second.front();
      found->second.pop_front();
      if (found->second.empty()) rows_with_room.erase(found);
    }
    rows[row].push_back(sample);
    if (room > sample) rows_with_room[room - sample].push_back(row);
  }
  return rows;
}

}  // namespace oometer
