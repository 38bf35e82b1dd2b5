#pragma once

#include <emscripten/val.h>

#include <string>

/// What JavaScript calls, in types that cross the boundary without handles: strings and copied arrays.
namespace oometer::wasm {

std::string estimate(const std::string& job);
std::string summary(const std::string& job);
std::string tree(const std::string& job);
std::string tensors(const std::string& job, const std::string& module);
emscripten::val series(const std::string& job);
emscripten::val snapshot(const std::string& job);
std::string advise(const std::string& job);
std::string checkpoints(const std::string& job);
std::string presets();
std::string version_text();
double heap_bytes();

}  // namespace oometer::wasm
