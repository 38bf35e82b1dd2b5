// What a page asks besides.
#include <emscripten/bind.h>

#include "adapters.h"

EMSCRIPTEN_BINDINGS(oometer_page) {
  emscripten::function("summary", &oometer::wasm::summary);
  emscripten::function("tree", &oometer::wasm::tree);
  emscripten::function("tensors", &oometer::wasm::tensors);
  emscripten::function("series", &oometer::wasm::series);
  emscripten::function("snapshot", &oometer::wasm::snapshot);
  emscripten::function("heapBytes", &oometer::wasm::heap_bytes);
}
