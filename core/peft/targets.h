#pragma once

#include <string>
#include <vector>

#include "peft/config.h"

/// Which paths peft's target_modules reach, for those who ask before the model is built.
namespace oometer {

/// Whether one of the names is the path or its end.
bool is_named(const std::vector<std::string>& names, const std::string& path);

bool is_excluded(const TargetModules& targets, const std::string& path);
/// By a name or the pattern, and not excluded. What "all-linear" reaches depends on the layer.
bool is_targeted(const TargetModules& targets, const std::string& path);

}  // namespace oometer
