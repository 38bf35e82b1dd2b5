#include "job/settings/fields.h"

#include <nlohmann/json.hpp>

namespace oometer {

using nlohmann::json;

namespace {

template <typename T>
T& as(void* member) {
  return *static_cast<T*>(member);
}

std::string_view spelling(const Field& field, std::uint8_t value) {
  for (const Name<std::uint8_t>& name : field.choices)
    if (name.value == value) return name.text;
  return "";
}

}  // namespace

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
    case Holder::optional_choice: {
      const auto& value = as<std::optional<std::uint8_t>>(member);
      return value ? json(spelling(field, *value)) : json();
    }
    case Holder::version:
      return to_string(as<Version>(member));
  }
  return {};
}

json write_fields(const Section& section, const void* object, const void* defaults) {
  json out = json::object();
  for (const Field& field : section.fields) {
    if (field.holder == Holder::none) continue;
    json value = field_value(field, object);
    if (value != field_value(field, defaults)) out[field.key] = std::move(value);
  }
  return out;
}

}  // namespace oometer
