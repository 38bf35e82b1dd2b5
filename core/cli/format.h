#pragma once

#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>

namespace oometer::cli {

/// "41.23 GiB": three or more digits that matter, in the unit that PyTorch's own messages use.
inline std::string bytes_text(std::int64_t bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  char text[48];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, units[unit]);
  return text;
}

/// "1.93 s", "35.2 ms": three digits.
inline std::string seconds_text(double seconds) {
  const bool small = seconds < 1;
  const double shown = small ? 1e3 * seconds : seconds;
  char text[48];
  std::snprintf(text, sizeof text, "%.*f %s", shown < 10 ? 2 : shown < 100 ? 1 : 0, shown, small ? "ms" : "s");
  return text;
}

}  // namespace oometer::cli
