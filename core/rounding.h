#pragma once

#include <cstdint>

/// Integer divisions that round up, of numbers that are not negative.
namespace oometer {

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return divide_up(value, multiple) * multiple;
}

}  // namespace oometer
