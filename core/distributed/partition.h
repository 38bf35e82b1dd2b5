#pragma once

#include <cstdint>
#include <vector>

/// How ZeRO cuts a parameter group into one partition a rank (DeepSpeed 0.12.6 - 0.19.8,
/// runtime/zero/stage_1_and_2.py).
namespace oometer {

/// A group's parameters end to end, padded, in equal parts. Everything is counted in elements.
struct FlatLayout {
  std::vector<std::int64_t> sizes;    ///< of the parameters, in the group's order
  std::vector<std::int64_t> offsets;  ///< where each begins in the flat buffer
  std::int64_t numel = 0;             ///< of all parameters
  std::int64_t padded = 0;            ///< with the padding at the end
  std::int64_t partition = 0;         ///< padded / world
  std::int64_t world = 1;

  /// Ranks whose partitions the parameter lies in.
  std::int64_t first_rank(std::size_t index) const { return offsets[index] / partition; }
  std::int64_t last_rank(std::size_t index) const { return (offsets[index] + sizes[index] - 1) / partition; }
  bool touches(std::size_t index, std::int64_t rank) const {
    return first_rank(index) <= rank && rank <= last_rank(index);
  }
  /// How many of a parameter's elements lie in the rank's partition.
  std::int64_t share(std::size_t index, std::int64_t rank) const;
  /// Elements of all parameters that touch the rank's partition, each counted whole: what the gradients of the
  /// partition take, since those that straddle its ends are kept whole (copy_grads_in_partition).
  std::int64_t touched(std::int64_t rank) const;
};

/// `round_robin`: parameters are dealt out to the ranks in turn (`round_robin_gradients`, _round_robin_reorder).
FlatLayout flat_layout(const std::vector<std::int64_t>& sizes, std::int64_t world, bool round_robin = false);

/// The rank that is likely to need most: whose partitions' gradients take most, in two bytes each, with the largest one
/// once more in float64, as the norm makes it; the first of equals. The flat parameters, the masters and the moments
/// are as large on every rank.
std::int64_t worst_rank(const std::vector<FlatLayout>& groups);

/// Where each of `world` ranks has other parameters: all of a few; of many the first and the last, which have the large
/// ends of a model, and the `likely` worst.
std::vector<std::int64_t> ranks_to_try(std::int64_t world, std::int64_t likely);

}  // namespace oometer
