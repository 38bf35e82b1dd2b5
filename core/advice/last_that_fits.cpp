#include "advice/last_that_fits.h"

#include <algorithm>
#include <cmath>

namespace oometer {

namespace {

/// So often a curve is taken for a line before the rest is halved.
constexpr int kPatience = 3;

}  // namespace

void LastThatFits::learn(std::int64_t number, const std::optional<Trial>& trial) {
  if (trial) points_.push_back({number, trial->headroom});
  if (trial && trial->fits)
    good_ = std::max(good_, number);
  else
    bad_ = std::min(bad_, number);
}

/// Where the line through the last two runs reaches no headroom.
std::optional<double> LastThatFits::crossing() const {
  if (points_.size() < 2) return std::nullopt;
  const Point &a = points_[points_.size() - 2], &b = points_.back();
  const double slope = static_cast<double>(b.headroom - a.headroom) / static_cast<double>(b.number - a.number);
  if (slope >= 0) return std::nullopt;
  return static_cast<double>(b.number) - static_cast<double>(b.headroom) / slope;
}

std::optional<std::int64_t> LastThatFits::next() {
  if (bad_ - good_ <= 1) return std::nullopt;
  const std::int64_t middle = good_ + (bad_ - good_) / 2;
  const std::optional<double> line = crossing();
  if (good_ < least_ && !line) return least_;
  if (!line || between_ == kPatience) return bad_ > most_ ? std::min(std::max(good_ + 1, 2 * good_), most_) : middle;
  if (*line > static_cast<double>(good_ + 1) && *line < static_cast<double>(bad_ - 1)) {
    ++between_;
    return static_cast<std::int64_t>(*line);
  }
  const bool ends_before = *line <= static_cast<double>(good_ + 1);
  const std::int64_t number = ends_before ? good_ + step_ : bad_ - step_;
  step_ *= 2;
  return good_ < number && number < bad_ ? number : middle;
}

}  // namespace oometer
