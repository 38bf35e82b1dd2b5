#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

/// For Family::largest_tensor: bytes in doubles, which do not overflow.
namespace oometer {

inline double bytes_of(std::initializer_list<std::int64_t> sizes) {
  double bytes = 8;  // the widest element
  for (const std::int64_t size : sizes) bytes *= static_cast<double>(size);
  return bytes;
}

/// The largest of a transformer's layer: its scores, its widest hidden states, its weights.
inline double bytes_of_layer(std::int64_t batch, std::int64_t tokens, std::int64_t hidden, std::int64_t inner,
                             std::int64_t heads) {
  return std::max({bytes_of({batch, heads, tokens, tokens}), bytes_of({batch, tokens, std::max(hidden, inner)}),
                   bytes_of({hidden, std::max(hidden, inner)})});
}

}  // namespace oometer
