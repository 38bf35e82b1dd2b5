// The table of what JavaScript sees; the functions are in adapters.cpp.
#include <emscripten/bind.h>

#include "adapters.h"

EMSCRIPTEN_BINDINGS(oometer) {
  emscripten::function("estimate", &oometer::wasm::estimate);
  emscripten::function("summary", &oometer::wasm::summary);
  emscripten::function("tree", &oometer::wasm::tree);
  emscripten::function("series", &oometer::wasm::series);
  emscripten::function("snapshot", &oometer::wasm::snapshot);
  emscripten::function("advise", &oometer::wasm::advise);
  emscripten::function("presets", &oometer::wasm::presets);
  emscripten::function("version", &oometer::wasm::version_text);
  emscripten::function("heapBytes", &oometer::wasm::heap_bytes);
}
