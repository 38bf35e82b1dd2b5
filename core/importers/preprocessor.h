#pragma once

#include "importers/context.h"

namespace oometer::importers {

/// A processor's configuration as it stands beside a model (preprocessor_config.json, processor_config.json).
bool is_preprocessor(const nlohmann::json& tree);

/// What it says of images, into the job's words of them, where the model has such. A trainer's own keys go before it.
/// Call after the importer.
void take_preprocessor(Context& context, const SourceFile& file);

}  // namespace oometer::importers
