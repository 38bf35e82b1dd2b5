#include "config/reader.h"
#include "models/mamba/mamba.h"

/// transformers 5.23, models/falcon_mamba/modeling_falcon_mamba.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "FalconMambaForCausalLM", "FalconMambaModel", "FalconMambaBlock", "", "", "FalconMambaRMSNorm", ""};
constexpr ModelClass kClasses[] = {{"falcon_mamba", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

MambaConfig read(ConfigReader& reader) {
  MambaConfig d;
  d.names = &kNames;
  d.vocab_size = 50280;
  d.hidden_size = 768;
  d.num_hidden_layers = 32;
  return read_mamba_config(reader, d);
}

DecoderParts parts(const MambaConfig& config, const ModelOptions&) {
  return mamba_parts(config, "FalconMambaMixer",
                     {.norm = l2_norm, .norm_type = "FalconMambaWeightlessRMSNorm", .has_buffers = true});
}

}  // namespace

namespace family {
extern const Family falcon_mamba = [] {
  Family its = text_family_of<MambaConfig, read, parts>(kClasses, kBlocks, mamba_traits);
  its.build = [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
    const auto& c = config.as<MambaConfig>();
    return build_mamba(context, c, data, options, parts(c, options));
  };
  its.convert_targets = refuse_mixer_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
