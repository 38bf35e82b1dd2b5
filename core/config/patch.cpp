#include "config/patch.h"

namespace oometer {

using nlohmann::json;

json patch_between(const json& from, const json& to) {
  if (!from.is_object() || !to.is_object()) return to;
  json patch = json::object();
  for (const auto& [key, value] : from.items())
    if (!to.contains(key)) patch[key] = nullptr;
  for (const auto& [key, value] : to.items()) {
    const auto found = from.find(key);
    if (found == from.end())
      patch[key] = value;
    else if (*found != value)
      patch[key] = patch_between(*found, value);
  }
  return patch;
}

}  // namespace oometer
