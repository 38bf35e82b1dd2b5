#pragma once

#include <cstdint>
#include <vector>

#include "tensor/tensor_list.h"

/// torch/csrc/distributed/c10d, as far as DDP and FSDP1 share it (2.15).
namespace oometer {

/// compute_bucket_assignment_by_size, reducer.cpp: tensors in their order, each dtype for itself; a bucket that has
/// reached its limit (bytes) is closed, and the next has the next limit, the last one for good. `in_order`: the buckets
/// that come out are sorted by their first tensor, as they are where the tensors are not in order of arrival.
std::vector<std::vector<std::size_t>> assign_buckets(const TensorList& tensors, const std::vector<std::int64_t>& limits,
                                                     bool in_order);

/// broadcast_coalesced, comm.cpp: flat copies of what is sent, 250 MiB each and at most two at a time; of one tensor a
/// mere view.
void broadcast_coalesced(Context& context, const TensorList& tensors, std::int64_t world);

}  // namespace oometer
