#include "sort_by.h"

#include <algorithm>

namespace oometer {

std::vector<std::uint32_t> ascending(const std::vector<std::int64_t>& keys) {
  std::vector<std::uint32_t> order(keys.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::uint32_t>(i);
  // A heap sort is the smallest; the position decides between equal keys.
  const auto before = [&](std::uint32_t a, std::uint32_t b) { return keys[a] != keys[b] ? keys[a] < keys[b] : a < b; };
  std::make_heap(order.begin(), order.end(), before);
  std::sort_heap(order.begin(), order.end(), before);
  return order;
}

}  // namespace oometer
