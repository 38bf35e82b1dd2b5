#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>

namespace oometer {

/// Dimensions (or strides) of a tensor, in elements. Six are enough for every model here (Qwen's patches have six).
struct Shape {
  static constexpr int kMaxDims = 6;

  constexpr Shape() = default;
  constexpr Shape(std::initializer_list<std::int64_t> values) {
    for (std::int64_t value : values) dims[count++] = value;
  }

  constexpr int ndim() const { return count; }
  /// Python's indexing: -1 is the last dimension.
  constexpr std::int64_t& operator[](int i) { return dims[static_cast<unsigned>(i < 0 ? i + count : i)]; }
  constexpr std::int64_t operator[](int i) const { return dims[static_cast<unsigned>(i < 0 ? i + count : i)]; }
  constexpr const std::int64_t* begin() const { return dims.data(); }
  constexpr const std::int64_t* end() const { return dims.data() + count; }

  constexpr void push_back(std::int64_t value) { dims[count++] = value; }
  constexpr void insert(int at, std::int64_t value) {
    for (int i = count; i > at; --i) dims[static_cast<unsigned>(i)] = dims[static_cast<unsigned>(i - 1)];
    dims[static_cast<unsigned>(at)] = value;
    ++count;
  }

  friend constexpr bool operator==(const Shape& a, const Shape& b) {
    if (a.count != b.count) return false;
    for (unsigned i = 0; i < a.count; ++i)
      if (a.dims[i] != b.dims[i]) return false;
    return true;
  }

  std::array<std::int64_t, kMaxDims> dims{};
  std::uint8_t count = 0;
};

/// Largest size that is computed with; beyond it a product saturates and the run is marked as overflowed.
inline constexpr std::int64_t kSizeLimit = std::int64_t{1} << 60;

/// a * b for non-negative sizes, saturating at kSizeLimit.
constexpr std::int64_t checked_product(std::int64_t a, std::int64_t b) {
  // Nearly always both are far below the limit's root: no need of the division, which would cost more than all else.
  if ((a | b) >> 30 == 0) return a * b;
  if (a == 0 || b == 0) return 0;
  return a > kSizeLimit / b ? kSizeLimit : a * b;
}

constexpr std::int64_t numel(const Shape& shape) {
  std::int64_t product = 1;
  bool overflows = false;
  for (const std::int64_t dim : shape) overflows |= __builtin_mul_overflow(product, dim, &product);
  if (!overflows && product <= kSizeLimit) return product;
  product = 1;
  for (const std::int64_t dim : shape) product = checked_product(product, dim);
  return product;
}

/// Strides of a contiguous (row-major) tensor.
constexpr Shape contiguous_strides(const Shape& sizes) {
  Shape strides = sizes;
  std::int64_t stride = 1;
  for (unsigned i = sizes.count; i-- > 0;) {
    strides.dims[i] = stride;
    if (sizes.dims[i] > 1) stride = checked_product(stride, sizes.dims[i]);
  }
  return strides;
}

/// The shape that two shapes broadcast to.
constexpr Shape broadcast(const Shape& a, const Shape& b) {
  const Shape& longer = a.ndim() >= b.ndim() ? a : b;
  const Shape& shorter = a.ndim() >= b.ndim() ? b : a;
  Shape result = longer;
  for (int i = 1; i <= shorter.ndim(); ++i)
    if (result[longer.ndim() - i] == 1) result[longer.ndim() - i] = shorter[shorter.ndim() - i];
  return result;
}

}  // namespace oometer
