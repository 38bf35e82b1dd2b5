#include "sort_by.h"

#include <algorithm>

namespace oometer {

std::vector<std::uint32_t> ascending(const std::vector<std::int64_t>& keys) {
  std::vector<std::uint32_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  // The position decides between equal keys.
  const auto before = [&](std::uint32_t a, std::uint32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; };
  // Mostly they are in order, or the other way round (as backward comes to parameters).
  if (std::is_sorted(order.begin(), order.end(), before)) return order;
  std::reverse(order.begin(), order.end());
  if (std::is_sorted(order.begin(), order.end(), before)) return order;
  // A heap sort is the smallest.
  std::make_heap(order.begin(), order.end(), before);
  std::sort_heap(order.begin(), order.end(), before);
  return order;
}

}  // namespace oometer
