#pragma once

#include <nlohmann/json.hpp>

namespace oometer {

/// The merge patch (RFC 7386) that makes one document of another. A null in `to` counts as absent, as in any patch.
nlohmann::json patch_between(const nlohmann::json& from, const nlohmann::json& to);

}  // namespace oometer
