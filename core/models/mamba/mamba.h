#pragma once

#include "models/kit/mamba.h"

/// transformers 5.23, models/mamba: every layer is a state space; there is no attention. FalconMamba is a copy whose
/// mixers normalise the time step, B and C.
namespace oometer {

struct MambaConfig : StateSpaceConfig {
  std::int64_t time_step_rank = 0;

  bool operator==(const MambaConfig&) const = default;
};

MambaConfig read_mamba_config(ConfigReader& reader, const LlamaClassNames& names);
DecoderParts mamba_parts(const MambaConfig& config, const char* mixer, const MambaParts& parts);
/// peft refuses out_proj and conv1d; of dt_proj the mixer reads the weight itself.
void refuse_mixer_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora);

}  // namespace oometer
