#include "distributed/broadcast.h"

#include <algorithm>
#include <deque>
#include <map>

#include "sort_by.h"
#include "tensor/context.h"
#include "tensor/kernel.h"

namespace oometer {

/// `broadcast_bucket_size`, nn/parallel/distributed.py and fsdp/_init_utils.py (PARAM_BROADCAST_BUCKET_SIZE).
constexpr std::int64_t kBroadcastBucket = 250 * (std::int64_t{1} << 20);

std::vector<std::vector<std::size_t>> assign_buckets(const TensorList& tensors, const std::vector<std::int64_t>& limits,
                                                     bool in_order) {
  struct Filling {
    std::vector<std::size_t> indices;
    std::int64_t bytes = 0;
    std::size_t limit = 0;
  };
  std::map<DType, Filling> filling;
  std::vector<std::vector<std::size_t>> buckets;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Filling& bucket = filling[tensors[i].dtype()];
    bucket.indices.push_back(i);
    bucket.bytes += tensors[i].nbytes();
    if (bucket.bytes < limits[bucket.limit]) continue;
    buckets.push_back(std::move(bucket.indices));
    bucket = {{}, 0, std::min(bucket.limit + 1, limits.size() - 1)};
  }
  for (auto& [dtype, bucket] : filling)
    if (!bucket.indices.empty()) buckets.push_back(std::move(bucket.indices));
  if (in_order) sort_by(buckets, [](const std::vector<std::size_t>& indices) { return indices.front(); });
  return buckets;
}

void broadcast_coalesced(Context& context, const TensorList& tensors, std::int64_t world) {
  std::deque<Tensor> in_flight;
  for (const std::vector<std::size_t>& bucket : assign_buckets(tensors, {kBroadcastBucket}, true)) {
    constexpr std::size_t kMaxInFlight = 2;
    if (in_flight.size() == kMaxInFlight) in_flight.pop_front();
    std::int64_t numel = 0;
    for (const std::size_t i : bucket) numel += tensors[i].numel();
    const Tensor& first = tensors[bucket.front()];
    in_flight.push_back(bucket.size() == 1 ? detach(first) : empty(context, Op::cat, {numel}, first.dtype()));
    collective(context, Op::broadcast, in_flight.back().nbytes(), first.dtype(), world);
  }
  while (!in_flight.empty()) in_flight.pop_front();
}

}  // namespace oometer
