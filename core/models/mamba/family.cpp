#include "config/reader.h"
#include "models/mamba/mamba.h"

/// transformers 5.23, models/mamba/modeling_mamba.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MambaForCausalLM", "MambaModel", "MambaBlock", "", "", "MambaRMSNorm", ""};
constexpr ModelClass kClasses[] = {{"mamba", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

MambaConfig read(ConfigReader& reader) { return read_mamba_config(reader, kNames); }

DecoderParts parts(const MambaConfig& config, const ModelOptions&) { return mamba_parts(config, "MambaMixer", {}); }

}  // namespace

namespace family {
extern const Family mamba = state_space_family<MambaConfig, read, parts>(kClasses, kBlocks, refuse_mixer_targets);
}  // namespace family

}  // namespace oometer
