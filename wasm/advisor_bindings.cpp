// What takes many answers: a page asks its workers for it, which have the whole module.
#include <emscripten/bind.h>

#include "adapters.h"

EMSCRIPTEN_BINDINGS(oometer_advisor) {
  emscripten::function("advise", &oometer::wasm::advise);
  emscripten::function("checkpoints", &oometer::wasm::checkpoints);
}
