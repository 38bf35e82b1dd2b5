// What JavaScript sees of every module; the functions are in adapters.cpp.
#include <emscripten/bind.h>

#include "adapters.h"

EMSCRIPTEN_BINDINGS(oometer) {
  emscripten::function("estimate", &oometer::wasm::estimate);
  emscripten::function("presets", &oometer::wasm::presets);
  emscripten::function("version", &oometer::wasm::version_text);
}
