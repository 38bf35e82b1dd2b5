#pragma once

#include <cstddef>
#include <iterator>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

/// A person's mistakes in a document: a key is missing, misspelt, or has another value.
namespace oometer {

/// One or two of them, in the objects at `places` (JSON pointers). `below(n)`: a random number less than n; `values`: a
/// list of what a key may hold instead; `misspell(key, place)` gives the object another key in that one's likeness and
/// returns it. Returns pointers to those.
template <class Below, class Misspell>
std::vector<nlohmann::json::json_pointer> mutate(nlohmann::json& document, std::span<const char* const> places,
                                                 const nlohmann::json& values, const Below& below,
                                                 const Misspell& misspell) {
  std::vector<nlohmann::json::json_pointer> misspelt;
  for (std::size_t edits = 1 + below(2); edits > 0; --edits) {
    const nlohmann::json::json_pointer pointer(places[below(places.size())]);
    if (!document.contains(pointer) || !document[pointer].is_object() || document[pointer].empty()) continue;
    nlohmann::json& place = document[pointer];
    auto member = place.begin();
    std::advance(member, static_cast<std::ptrdiff_t>(below(place.size())));
    const std::string key = member.key();
    switch (below(4)) {
      case 0:
        place.erase(key);
        break;
      case 1:
        misspelt.push_back(pointer / misspell(key, place));
        break;
      default:
        place[key] = values[below(values.size())];
    }
  }
  return misspelt;
}

}  // namespace oometer
