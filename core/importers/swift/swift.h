#pragma once

#include <string>

#include "importers/context.h"

namespace oometer::importers {

/// ms-swift's `swift sft` and `swift pt`: their command line or YAML (swift/arguments). `program`: which of its
/// commands.
void read_swift(Context& context, Keys& keys, const std::string& program);

bool is_swift(const nlohmann::json& tree);

}  // namespace oometer::importers
