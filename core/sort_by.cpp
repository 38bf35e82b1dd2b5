#include "sort_by.h"

#include <algorithm>

namespace oometer {

std::vector<std::uint32_t> ascending(const std::vector<std::int64_t>& keys) {
  std::vector<std::uint32_t> order(keys.size()), merged(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  // Runs that are in order are merged, two at a time: mostly there are one or two from the beginning.
  const auto before = [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; };
  while (!std::is_sorted(order.begin(), order.end(), before)) {
    auto to = merged.begin();
    for (auto run = order.begin(); run != order.end();) {
      const auto next = std::is_sorted_until(run, order.end(), before);
      const auto end = std::is_sorted_until(next, order.end(), before);
      to = std::merge(run, next, next, end, to, before);
      run = end;
    }
    order.swap(merged);
  }
  return order;
}

}  // namespace oometer
