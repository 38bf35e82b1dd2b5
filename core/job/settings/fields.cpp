#include "job/settings/fields.h"

#include <nlohmann/json.hpp>

namespace oometer {

using nlohmann::json;

namespace {

template <typename T>
T& as(void* member) {
  return *static_cast<T*>(member);
}

Range range_of_numbers(const Field& field) {
  return {static_cast<std::int64_t>(field.min), static_cast<std::int64_t>(field.max)};
}

std::string_view spelling(const Field& field, std::uint8_t value) {
  for (const Name<std::uint8_t>& name : field.choices)
    if (name.value == value) return name.text;
  return "";
}

void read_version(ConfigReader& reader, const Field& field, Version& member) {
  const Result<Version> version = parse_version(reader.text(field.key, to_string(member)));
  Version first = settings::version_of(field.min), last = settings::version_of(field.max);
  if (version && *version >= first && *version <= last) {
    member = *version;
    return;
  }
  last.patch = 0;
  reader.fail_found(field.key, "out-of-range",
                    "expected a version in quotes from \"" + to_string(first) + "\" to \"" + to_string(last) + "\"");
}

}  // namespace

std::optional<std::int64_t> read_integer(ConfigReader& reader, const Section& section, std::string_view key) {
  for (const Field& field : section.fields)
    if (field.key == key) return reader.optional_integer(field.key, range_of_numbers(field));
  return std::nullopt;
}

json field_value(const Field& field, const void* object) {
  void* const member = field.member(const_cast<void*>(object));  // NOLINT(cppcoreguidelines-pro-type-const-cast)
  const auto or_null = [](const auto& optional) { return optional ? json(*optional) : json(); };
  switch (field.holder) {
    case Holder::none:
      break;
    case Holder::boolean:
      return as<bool>(member);
    case Holder::integer:
      return as<std::int64_t>(member);
    case Holder::integer_or_zero:
      return as<std::int64_t>(member) == 0 ? json() : json(as<std::int64_t>(member));
    case Holder::optional_integer:
      return or_null(as<std::optional<std::int64_t>>(member));
    case Holder::number:
      return as<double>(member);
    case Holder::optional_number:
      return or_null(as<std::optional<double>>(member));
    case Holder::text:
      return as<std::string>(member);
    case Holder::names:
      return as<std::vector<std::string>>(member);
    case Holder::choice:
      return spelling(field, as<std::uint8_t>(member));
    case Holder::version:
      return to_string(as<Version>(member));
  }
  return {};
}

void read_members(ConfigReader& reader, const Section& section, void* object) {
  for (const Field& field : section.fields) {
    const char* const key = field.key;
    const Range range = range_of_numbers(field);
    void* const member = field.holder == Holder::none ? nullptr : field.member(object);
    switch (field.holder) {
      case Holder::none:
        break;
      case Holder::boolean:
        as<bool>(member) = reader.boolean(key, as<bool>(member));
        break;
      case Holder::integer:
        as<std::int64_t>(member) = reader.integer(key, as<std::int64_t>(member), range);
        break;
      case Holder::integer_or_zero:
        as<std::int64_t>(member) = reader.optional_integer(key, range).value_or(0);
        break;
      case Holder::optional_integer:
        as<std::optional<std::int64_t>>(member) = reader.optional_integer(key, range);
        break;
      case Holder::number:
        as<double>(member) = reader.number(key, as<double>(member), field.min, field.max);
        break;
      case Holder::optional_number:
        as<std::optional<double>>(member) = reader.optional_number(key, field.min, field.max);
        break;
      case Holder::text:
        as<std::string>(member) = reader.text(key, as<std::string>(member));
        break;
      case Holder::names:
        if (reader.has(key)) as<std::vector<std::string>>(member) = reader.texts(key);
        break;
      case Holder::choice:
        // Objects and null are the caller's.
        if (((field.types & kObject) != 0 && reader.is_object(key)) || ((field.types & kNull) != 0 && !reader.has(key)))
          break;
        as<std::uint8_t>(member) = reader.choice(key, as<std::uint8_t>(member), field.choices);
        break;
      case Holder::version:
        read_version(reader, field, as<Version>(member));
        break;
    }
  }
}

json write_members(const Section& section, const void* object, const void* defaults) {
  json out = json::object();
  for (const Field& field : section.fields) {
    if (field.holder == Holder::none) continue;
    json value = field_value(field, object);
    if (value != field_value(field, defaults)) out[field.key] = std::move(value);
  }
  return out;
}

}  // namespace oometer
