#pragma once

#include "importers/context.h"

namespace oometer::importers {

/// NeMo Automodel's YAML, as its recipes of next-token training read it (recipes/llm/train_ft.py,
/// recipes/vlm/finetune.py, recipes/llm/benchmark.py). Its keys are nested: here they are dotted, as its command line
/// has them.
void read_automodel(Context& context, Keys& keys);

bool is_automodel(const nlohmann::json& tree);

/// The tree with dotted keys; sections that change no memory stay whole.
nlohmann::json dotted_automodel(const nlohmann::json& tree);

}  // namespace oometer::importers
