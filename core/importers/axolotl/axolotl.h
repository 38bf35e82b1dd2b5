#pragma once

#include "importers/context.h"

namespace oometer::importers {

/// Axolotl's YAML, as axolotl train reads it (utils/schemas, utils/config/__init__.py, core/builders).
void read_axolotl(Context& context, Keys& keys);

bool is_axolotl(const nlohmann::json& tree);

}  // namespace oometer::importers
