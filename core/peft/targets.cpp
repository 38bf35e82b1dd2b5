#include "peft/targets.h"

#include <algorithm>

#include "config/pattern.h"

namespace oometer {

namespace {

bool is_reached(const std::vector<std::string>& names, const std::string& pattern, const std::string& path) {
  if (is_named(names, path)) return true;
  if (pattern.empty()) return false;
  const Result<Pattern> parsed = Pattern::parse(pattern);
  return parsed && parsed->matches(path);
}

}  // namespace

bool is_named(const std::vector<std::string>& names, const std::string& path) {
  return std::any_of(names.begin(), names.end(),
                     [&](const std::string& name) { return path == name || path.ends_with("." + name); });
}

bool is_excluded(const TargetModules& targets, const std::string& path) {
  return is_reached(targets.excluded_names, targets.excluded_pattern, path);
}

bool is_targeted(const TargetModules& targets, const std::string& path) {
  return is_reached(targets.names, targets.pattern, path) && !is_excluded(targets, path);
}

}  // namespace oometer
