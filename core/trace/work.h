#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "trace/dtype.h"

/// What operators compute and move, beside the log of what they allocate: FLOPs, bytes read and written, bytes sent.
namespace oometer {

/// What sort of work a kernel does.
enum class WorkKind : std::uint8_t {
  none,  ///< a view, a factory without values, a name of the log's own
  gemm,
  attention,
  convolution,
  elementwise,
  reduction,  ///< normalisations and softmax too
  copy,       ///< casts and changes of layout, joining and splitting
  index,      ///< gather, scatter, masks
  sort,
  optimizer,
  communication,
};
inline constexpr std::size_t kWorkKinds = 11;

/// One kernel, or one collective.
struct Work {
  std::uint32_t module = 0;   ///< whose code ran it, ModuleId; of blocks that are repeated: the one that was executed
  std::uint32_t product = 0;  ///< which of the log's products it is; 0: none, as most
  std::uint16_t op = 0;
  WorkKind kind = WorkKind::none;
  DType dtype = DType::float32;  ///< of what it writes
  std::uint8_t stream = 0;
  bool recomputed = false;             ///< in a checkpointed block's second forward
  std::int64_t read = 0, written = 0;  ///< bytes of the tensors touched, each once
};

/// Which matrices of a product have rows whose distance is an odd number of elements: of 2 bytes each, they can be read
/// and written one by one only.
enum class OddRows : std::uint8_t { none, result, operands };

/// What matrix products and collectives have beside: `batch` products of [m, k] x [k, n]; attention: `batch` heads in
/// all, m queries, n keys, k the width of a head. Of a collective `n` is the number of ranks.
struct WorkProduct {
  std::int64_t batch = 1, m = 0, n = 0, k = 0;
  std::int64_t flops = 0;    ///< on the device: of causal attention half
  std::int64_t counted = 0;  ///< of these what torch.utils.flop_counter counts: causal attention in full
  OddRows odd_rows = OddRows::none;
  std::int64_t sent = 0;  ///< a collective's message in bytes: the whole tensor that is reduced, gathered or broadcast
};

/// A place among the works and their repetitions.
struct WorkMark {
  bool operator==(const WorkMark& other) const = default;

  std::uint32_t work = 0, repeat = 0;
};
struct WorkRange {
  bool operator==(const WorkRange& other) const = default;

  WorkMark begin, end;
};

/// What was done in a range is done `times` more, here: where blocks or micro-steps are written, not executed.
struct WorkRepeat {
  WorkRange range;
  std::uint32_t at = 0;  ///< before which work
  std::int64_t times = 1;
};

struct WorkLog {
  std::vector<Work> works;
  std::vector<WorkProduct> products{1};  ///< the first is that of works that are none
  std::vector<WorkRepeat> repeats;

  const WorkProduct& product(const Work& work) const { return products[work.product]; }

  WorkMark mark() const {
    return {static_cast<std::uint32_t>(works.size()), static_cast<std::uint32_t>(repeats.size())};
  }
  /// What was done in a range is done again.
  void repeat(const WorkRange& range, std::int64_t times = 1) {
    if (times > 0 && !(range.begin == range.end)) repeats.push_back({range, mark().work, times});
  }
  /// How often each of `works` was done in a range.
  std::vector<std::int64_t> times(const WorkRange& range) const { return times(std::span(&range, 1)); }
  /// The same of several ranges, in their order.
  std::vector<std::int64_t> times(std::span<const WorkRange> ranges) const;
};

}  // namespace oometer
