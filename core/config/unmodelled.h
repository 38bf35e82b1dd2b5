#pragma once

#include <cstdint>
#include <string>

namespace oometer {

/// Which way the memory of a run may differ from its answer.
enum class Effect : std::uint8_t { unknown, less, more, either };

/// What an answer leaves out.
struct Unmodelled {
  bool operator==(const Unmodelled& other) const = default;
  /// The run may need more than the answer says.
  bool may_need_more() const { return effect == Effect::more || effect == Effect::either; }

  std::string text;  ///< of a key, its JSON pointer first
  Effect effect = Effect::unknown;
};

}  // namespace oometer
