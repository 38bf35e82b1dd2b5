#pragma once

#include <emscripten/val.h>

#include <string>

/// What JavaScript calls, in types that cross the boundary without handles: strings and copied arrays.
namespace oometer::wasm {

std::string estimate(const std::string& job);
std::string presets();
std::string version_text();
double heap_bytes();

}  // namespace oometer::wasm
