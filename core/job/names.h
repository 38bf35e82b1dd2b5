#pragma once

#include <string>

#include "config/reader.h"
#include "job/settings/choices.h"

/// How a job's JSON spells enumerators, for code that reads or writes them by itself.
namespace oometer {

inline constexpr auto kTasks = settings::names<settings::kTasks>;
inline constexpr auto kCaches = settings::names<settings::kCaches>;
inline constexpr auto kCacheBackends = settings::names<settings::kCacheBackends>;
inline constexpr auto kLogits = settings::names<settings::kLogits>;
inline constexpr auto kStages = settings::names<settings::kStages>;
inline constexpr auto kPrecisions = settings::names<settings::kPrecisions>;
inline constexpr auto kOptimizers = settings::names<settings::kOptimizers>;
inline constexpr auto kImplementations = settings::names<settings::kImplementations>;
inline constexpr auto kAttentions = settings::names<settings::kAttentions>;
inline constexpr auto kCheckpointModes = settings::names<settings::kCheckpointModes>;
inline constexpr auto kSavesOn = settings::names<settings::kSavesOn>;
inline constexpr auto kLoraBiases = settings::names<settings::kLoraBiases>;
inline constexpr auto kStrategies = settings::names<settings::kStrategies>;
inline constexpr auto kFrameworks = settings::names<settings::kFrameworks>;
inline constexpr auto kExperts = settings::names<settings::kExperts>;
inline constexpr auto kFloats = settings::names<settings::kFloats>;
inline constexpr auto kShardings = settings::names<settings::kShardings>;
inline constexpr auto kPrefetches = settings::names<settings::kPrefetches>;

template <typename T, std::size_t N>
std::string name_of(T value, const std::array<Name<T>, N>& names) {
  for (const Name<T>& name : names) {
    if (name.value == value) return std::string(name.text);
  }
  return "";
}

}  // namespace oometer
