#pragma once

#include "importers/context.h"

namespace oometer::importers {

/// LLaMA-Factory's YAML, JSON or command line, as llamafactory-cli train reads them (hparams/parser.py).
void read_llamafactory(Context& context, Keys& keys);

bool is_llamafactory(const nlohmann::json& tree);

}  // namespace oometer::importers
