#pragma once

#include <string>

#include "importers/context.h"

namespace oometer::importers {

/// A script or notebook of Unsloth: from_pretrained's and get_peft_model's arguments with these names before them
/// ("get_peft_model.r"), and the arguments of SFTConfig. `program`: which of TRL's trainers it makes.
void read_unsloth(Context& context, Keys& keys, const std::string& program);

}  // namespace oometer::importers
