#pragma once

#include <string>

#include "importers/context.h"

namespace oometer::importers {

/// verl's supervised fine-tuning (`-m verl.trainer.sft_trainer`), whose keys Hydra takes as words of its command line
/// or from a YAML (trainer/config/sft_trainer_engine.yaml). They are nested: here they are dotted, as Hydra has them.
/// `program`: which of its modules.
void read_verl(Context& context, Keys& keys, const std::string& program);

bool is_verl(const nlohmann::json& tree);

/// A YAML's tree with dotted keys, or a command line's words without Hydra's signs: "+model.lora_rank".
nlohmann::json dotted_verl(const nlohmann::json& tree);

}  // namespace oometer::importers
