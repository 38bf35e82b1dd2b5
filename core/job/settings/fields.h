#pragma once

#include <nlohmann/json.hpp>

#include "config/reader.h"
#include "job/settings/sections.h"

/// Reading and writing an object of a job by its table.
namespace oometer {

/// What a member holds, as a job says it.
nlohmann::json field_value(const Field& field, const void* object);

void read_members(ConfigReader& reader, const Section& section, void* object);
nlohmann::json write_members(const Section& section, const void* object, const void* defaults);

/// Reads what is there into `object`, which holds the defaults; types, ranges and choices are checked. Settings that no
/// member keeps are left to the caller.
template <typename T>
void read_fields(ConfigReader& reader, const SectionOf<T>& section, T& object) {
  read_members(reader, section, &object);
}

/// A whole number that no member keeps, within the range of its row; none where a job does not say it.
std::optional<std::int64_t> read_integer(ConfigReader& reader, const Section& section, std::string_view key);

/// What differs from the defaults. Settings that no member keeps are left to the caller.
template <typename T>
nlohmann::json write_fields(const SectionOf<T>& section, const T& object, const T& defaults = {}) {
  return write_members(section, &object, &defaults);
}

}  // namespace oometer
