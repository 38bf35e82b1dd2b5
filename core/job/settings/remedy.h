#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace oometer {

/// What a change to a job is paid with, the cheapest first.
enum class Price : std::uint8_t { nothing, time, numerics, training, hardware };
inline constexpr std::size_t kPrices = 5;

/// A value of a setting that can make a job fit. The advisor (core/advice) tries it wherever the job has another value
/// and the core accepts this one.
struct Remedy {
  const char* value;  ///< as JSON; an object is a merge patch on what the job has
  Price price;
  std::uint8_t weight;  ///< how much it costs among remedies of that price
  const char* label;    ///< for people: "SDPA attention"
  const char* costs;    ///< what it costs, for people: "slower: ..."
  /// False: beside other changes it need not be less memory.
  bool is_ordered = true;
};

/// The remedies of a row, without its words.
struct Remedies {
  const char* key = "";
  std::span<const Remedy> values;
};

}  // namespace oometer
