#pragma once

#include "importers/context.h"

namespace oometer::importers {

/// torchtitan's command line (`-m torchtitan.train --module llama3 --config llama3_8b`, run_train.sh): a configuration
/// of its registries (models/*/config_registry.py), and what the options put over it. Its models are classes of its
/// own: the answer is of transformers' model of the same figures, which is listed.
void read_torchtitan(Context& context, Keys& keys);

}  // namespace oometer::importers
