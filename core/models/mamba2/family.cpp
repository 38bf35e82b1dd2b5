#include <string>

#include "config/reader.h"
#include "models/kit/mamba.h"
#include "models/kit/mamba2.h"
#include "models/kit/norms.h"
#include "ops/ops.h"

/// transformers 5.23, models/mamba2/modeling_mamba2.py: every layer is a state space; there is no attention.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Mamba2ForCausalLM", "Mamba2Model", "Mamba2Block", "", "", "Mamba2RMSNorm", ""};
constexpr ModelClass kClasses[] = {{"mamba2", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

StateSpaceConfig read(ConfigReader& reader) {
  StateSpaceConfig c;
  c.names = &kNames;
  c.vocab_size = 32768;
  c.hidden_size = 4096;
  c.num_hidden_layers = 64;
  c.tie_word_embeddings = false;
  read_state_space_model(reader, c);
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::mamba2 | Kernels::causal_conv1d;
  m.num_value_heads = reader.integer("num_heads", 128);
  m.value_head_dim = reader.integer("head_dim", 64);
  m.num_key_heads = reader.integer("n_groups", 8);
  m.key_head_dim = reader.integer("state_size", 128);
  m.chunk_size = reader.integer("chunk_size", 256);
  c.intermediate_size = checked_product(reader.integer("expand", 2), c.hidden_size);
  if (m.value_size() != c.intermediate_size)
    reader.fail_found(
        "num_heads", "inconsistent",
        "expected heads of expand * hidden_size (" + std::to_string(c.intermediate_size) + ") elements together");
  read_mamba_groups(reader, c);
  reader.ignore({"time_step_rank", "time_step_limit", "norm_before_gate"});
  return c;
}

DecoderParts parts(const StateSpaceConfig& config, const ModelOptions&) {
  DecoderParts parts = mamba_model_parts();
  parts.layer = [config](const Builder& layer, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<MambaBlock>(layer, config, config.residual_in_fp32, [&](const Builder& block) {
      return [mixer = Mamba2Mixer(block.child("mixer", "Mamba2Mixer"), config, config.hidden_act, index,
                                  {.norm_type = "MambaRMSNormGated"})](const Tensor& hidden_states,
                                                                       const Tensor& attention_mask) {
        return mixer(hidden_states, attention_mask).output;
      };
    });
  };
  return parts;
}

void refuse_targets(ConfigReader& reader, const FamilyConfig&, LoraConfig& lora) {
  refuse_mamba_targets(reader, lora, {"backbone.layers.0.mixer"});  // all of them are alike
}

}  // namespace

namespace family {
extern const Family mamba2 = state_space_family<StateSpaceConfig, read, parts>(kClasses, kBlocks, refuse_targets);
}  // namespace family

}  // namespace oometer
