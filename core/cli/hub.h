#pragma once

#include <string>

namespace oometer::cli {

/// presets/hub.json, embedded at build (cmake/embed_hub.cmake).
std::string hub_text();

}  // namespace oometer::cli
