#pragma once

#include "importers/context.h"

namespace oometer::importers {

/// TRL's commands (trl/scripts: sft.py, dpo.py, kto.py, reward.py): SFTConfig or its kin, ModelConfig and
/// ScriptArguments together, from the command line or a YAML. `program`: "sft", "dpo" or what else is asked for.
void read_trl(Context& context, Keys& keys, const std::string& program);

/// Whether a tree has keys that only TRL's commands take; and which of them it is for.
bool is_trl(const nlohmann::json& tree);
std::string trl_program(const nlohmann::json& tree);

}  // namespace oometer::importers
