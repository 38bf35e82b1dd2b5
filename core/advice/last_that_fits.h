#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "advice/advice.h"

namespace oometer {

/// Looks for the last number of [least, most] with which a job fits, where with more it never fits again. Memory nearly
/// lies on a line, so that the runs so far say where to look:
///
///     LastThatFits search(1, most);
///     while (const auto number = search.next()) search.learn(*number, run with it);
///     search.found()
///
/// What is found was run and fits, and the next one was run and does not, or lies beyond the bound.
class LastThatFits {
 public:
  LastThatFits(std::int64_t least, std::int64_t most) : good_(least - 1), least_(least), bad_(most + 1), most_(most) {}

  /// None: it is found.
  std::optional<std::int64_t> next();
  /// `trial`: none where the run is refused, as if it did not fit. A number may be learnt that nobody asked for.
  void learn(std::int64_t number, const std::optional<Trial>& trial);
  /// None where not even the least fits.
  std::optional<std::int64_t> found() const { return good_ < least_ ? std::nullopt : std::optional(good_); }

 private:
  struct Point {
    std::int64_t number, headroom;
  };

  std::optional<double> crossing() const;

  std::int64_t good_, least_;  ///< the last that fits so far; least - 1: none
  std::int64_t bad_, most_;    ///< the first that does not
  std::vector<Point> points_;
  std::int64_t step_ = 1;  ///< beyond where the line says that it ends, twice as far each time
  int between_ = 0;        ///< how often the line was followed in vain
};

}  // namespace oometer
