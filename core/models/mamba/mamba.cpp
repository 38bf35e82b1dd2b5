#include "models/mamba/mamba.h"

#include "config/reader.h"
#include "models/kit/mamba2.h"

namespace oometer {

MambaConfig read_mamba_config(ConfigReader& reader, const LlamaClassNames& names) {
  MambaConfig c;
  c.names = &names;
  c.vocab_size = 50280;
  c.hidden_size = 768;
  c.num_hidden_layers = 32;
  c.tie_word_embeddings = true;
  read_state_space_model(reader, c);
  MixerConfig& m = c.mixer;
  // MambaConfig.__post_init__ makes intermediate_size of expand, whatever the config says.
  m.num_value_heads = c.intermediate_size = checked_product(reader.integer("expand", 2), c.hidden_size);
  m.value_head_dim = 1;
  m.key_head_dim = m.chunk_size = reader.integer("state_size", 16);
  c.time_step_rank = (c.hidden_size + 15) / 16;
  if (!reader.is_auto("time_step_rank")) c.time_step_rank = reader.integer("time_step_rank", c.time_step_rank);
  // Another way to scan, if a package is installed; and one that torch.compile alone takes.
  reader.refuse("use_mambapy", "it is not supported yet");
  reader.ignore({"mixer_rms_eps", "time_step_scale", "time_step_init_scheme", "use_associative_scan", "d_inner",
                 "d_model", "n_layer", "ssm_cfg", "fused_add_norm", "pad_vocab_size_multiple", "use_falcon_mambapy"});
  return c;
}

DecoderParts mamba_parts(const MambaConfig& config, const char* mixer, const MambaParts& its) {
  DecoderParts parts = mamba_model_parts();
  parts.layer = [config, mixer, its](const Builder& layer, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<MambaBlock>(layer, config, config.residual_in_fp32, [&](const Builder& block) {
      return MambaMixer(block.child("mixer", mixer), config, config.time_step_rank, index, its);
    });
  };
  return parts;
}

void refuse_mixer_targets(ConfigReader& reader, const FamilyConfig&, LoraConfig& lora) {
  refuse_mamba_targets(reader, lora, {"backbone.layers.0.mixer"});  // all of them are alike
  refuse_dt_proj(reader, lora, "in_proj, x_proj");
}

}  // namespace oometer
