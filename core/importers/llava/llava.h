#pragma once

#include <string>

#include "importers/context.h"

namespace oometer::importers {

/// The training scripts of haotian-liu/LLaVA (llava/train/train.py). `program`: "train", "train_mem", "train_xformers".
void read_llava(Context& context, Keys& keys, const std::string& program);

}  // namespace oometer::importers
