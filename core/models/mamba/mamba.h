#pragma once

#include "models/kit/mamba.h"
#include "models/kit/recurrent.h"
#include "peft/config.h"

/// transformers 5.23, models/mamba: every layer is a state space; there is no attention. FalconMamba is a copy whose
/// mixers normalise the time step, B and C.
namespace oometer {

struct MambaConfig : TextConfig {
  bool residual_in_fp32 = true;
  std::int64_t time_step_rank = 0;

  bool operator==(const MambaConfig&) const = default;
};

/// `usual`: names, and sizes where the config does not say.
MambaConfig read_mamba_config(ConfigReader& reader, MambaConfig usual);
DecoderParts mamba_parts(const MambaConfig& config, const char* mixer, const MambaParts& parts);
std::unique_ptr<Model> build_mamba(Context& context, const MambaConfig& config, const DataConfig& data,
                                   const ModelOptions& options, DecoderParts parts);
/// peft refuses out_proj and conv1d; of dt_proj the mixer reads the weight itself.
void refuse_mixer_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora);
ModelTraits mamba_traits(const FamilyConfig& config);

}  // namespace oometer
