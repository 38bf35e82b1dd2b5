#include "config/reader.h"
#include "models/mamba/mamba.h"

/// transformers 5.23, models/falcon_mamba/modeling_falcon_mamba.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "FalconMambaForCausalLM", "FalconMambaModel", "FalconMambaBlock", "", "", "FalconMambaRMSNorm", ""};
constexpr ModelClass kClasses[] = {{"falcon_mamba", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

MambaConfig read(ConfigReader& reader) { return read_mamba_config(reader, kNames); }

DecoderParts parts(const MambaConfig& config, const ModelOptions&) {
  return mamba_parts(config, "FalconMambaMixer",
                     {.norm = l2_norm, .norm_type = "FalconMambaWeightlessRMSNorm", .has_buffers = true});
}

}  // namespace

namespace family {
extern const Family falcon_mamba =
    state_space_family<MambaConfig, read, parts>(kClasses, kBlocks, refuse_mixer_targets);
}  // namespace family

}  // namespace oometer
