#include "importers/ledger.h"

#include <utility>

namespace oometer::importers {

using nlohmann::json;

void Ledger::put(const std::string& pointer, json value) {
  const json::json_pointer at(pointer);
  if (!at.parent_pointer().empty()) {
    json& parent = job[at.parent_pointer()];
    if (!parent.is_object()) parent = json::object();
  }
  job[at] = std::move(value);
}

void Ledger::refuse(const std::string& file, const std::string& key, const std::string& message) {
  if (!refused) refused = Refusal{file, key, "", message};
}

}  // namespace oometer::importers
