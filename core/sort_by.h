/// \file
/// Sorting by a whole number: one algorithm for all types, where std::stable_sort would be compiled for each (in
/// WebAssembly some 5 kB a type).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace oometer {

/// Positions of the keys from the smallest to the largest, equal ones in their order.
std::vector<std::uint32_t> ascending(const std::vector<std::int64_t>& keys);

/// Sorts items by key(item), from the smallest to the largest; equal ones keep their order.
template <class T, class Key>
void sort_by(std::vector<T>& items, Key key) {
  if (items.size() < 2) return;
  std::vector<std::int64_t> keys;
  keys.reserve(items.size());
  for (const T& item : items) keys.push_back(static_cast<std::int64_t>(key(item)));
  std::vector<T> sorted;
  sorted.reserve(items.size());
  for (const std::uint32_t i : ascending(keys)) sorted.push_back(std::move(items[i]));
  items = std::move(sorted);
}

}  // namespace oometer
