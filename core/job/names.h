#pragma once

#include <string>

#include "config/reader.h"
#include "job/settings/choices.h"

/// How a job's JSON spells enumerators, for code that reads or writes them by itself.
namespace oometer {

inline constexpr auto kTasks = settings::names<settings::kTasks>;
inline constexpr auto kPrecisions = settings::names<settings::kPrecisions>;
inline constexpr auto kAttentions = settings::names<settings::kAttentions>;
inline constexpr auto kCheckpointModes = settings::names<settings::kCheckpointModes>;
inline constexpr auto kFrameworks = settings::names<settings::kFrameworks>;
inline constexpr auto kKernels = settings::names<settings::kKernels>;
inline constexpr auto kExperts = settings::names<settings::kExperts>;
inline constexpr auto kPackings = settings::names<settings::kPackings>;
inline constexpr auto kPaddings = settings::names<settings::kPaddings>;
inline constexpr auto kSides = settings::names<settings::kSides>;
inline constexpr auto kScored = settings::names<settings::kScored>;
inline constexpr auto kReferences = settings::names<settings::kReferences>;
inline constexpr auto kLoops = settings::names<settings::kLoops>;
inline constexpr auto kOptimizers = settings::names<settings::kOptimizers>;
inline constexpr auto kImplementations = settings::names<settings::kImplementations>;
inline constexpr auto kFloats = settings::names<settings::kFloats>;

template <typename T, std::size_t N>
std::string name_of(T value, const std::array<Name<T>, N>& names) {
  for (const Name<T>& name : names) {
    if (name.value == value) return std::string(name.text);
  }
  return "";
}

}  // namespace oometer
