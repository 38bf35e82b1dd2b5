#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "result.h"

namespace oometer::cli {

/// A YAML document as JSON: plain words become null, truths and numbers as PyYAML and OmegaConf have them, texts in
/// quotes stay texts; `<<` is merged. An error's pointer is empty; its message begins with line and column. Refused: a
/// key twice in a mapping, more than one document, more than 64 levels, aliases that make it large.
Result<nlohmann::json> parse_yaml(const std::string& text);

}  // namespace oometer::cli
