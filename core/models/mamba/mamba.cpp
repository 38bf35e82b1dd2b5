#include "models/mamba/mamba.h"

#include <algorithm>
#include <utility>

#include "config/reader.h"
#include "models/kit/mamba2.h"

namespace oometer {

MambaConfig read_mamba_config(ConfigReader& reader, MambaConfig c) {
  c.vocab_size = reader.integer("vocab_size", c.vocab_size);
  c.hidden_size = reader.integer("hidden_size", c.hidden_size);
  c.num_hidden_layers = reader.integer("num_hidden_layers", c.num_hidden_layers, layer_count);
  c.hidden_act = reader.activation("hidden_act", Activation::silu);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  c.residual_in_fp32 = reader.boolean("residual_in_fp32", true);
  c.has_pad_token = !reader.is_null("pad_token_id");
  c.rotary_dim = -1;
  // It attends to nothing: one head, and a length at which nothing stops.
  c.num_attention_heads = c.num_key_value_heads = 1;
  c.head_dim = c.hidden_size;
  c.max_position_embeddings = 1 << 20;
  MixerConfig& m = c.mixer;
  m.packages = kMambaSsm;
  m.layers.assign(static_cast<std::size_t>(c.num_hidden_layers), true);
  // MambaConfig.__post_init__ makes intermediate_size of expand, whatever the config says.
  m.num_value_heads = c.intermediate_size = checked_product(reader.integer("expand", 2), c.hidden_size);
  m.value_head_dim = 1;
  m.key_head_dim = m.chunk_size = reader.integer("state_size", 16);
  m.conv_kernel = reader.integer("conv_kernel", 4);
  m.conv_bias = reader.boolean("use_conv_bias", true);
  m.bias = reader.boolean("use_bias", false);
  c.time_step_rank = (c.hidden_size + 15) / 16;
  if (!reader.is_auto("time_step_rank")) c.time_step_rank = reader.integer("time_step_rank", c.time_step_rank);
  // Another way to scan, if a package is installed; and one that torch.compile alone takes.
  reader.refuse("use_mambapy", "it is not supported yet");
  reader.ignore({"pad_token_id", "layer_norm_epsilon", "mixer_rms_eps", "time_step_min", "time_step_max",
                 "time_step_floor", "time_step_scale", "time_step_init_scheme", "rescale_prenorm_residual",
                 "intermediate_size", "use_associative_scan", "d_inner", "d_model", "n_layer", "rms_norm", "ssm_cfg",
                 "fused_add_norm", "pad_vocab_size_multiple", "use_falcon_mambapy"});
  return c;
}

DecoderParts mamba_parts(const MambaConfig& config, const char* mixer, const MambaParts& its) {
  DecoderParts parts = mamba_model_parts();
  parts.layer = [config, mixer, its](const Builder& layer, std::size_t) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<MambaBlock>(layer, config, config.residual_in_fp32, [&](const Builder& block) {
      return MambaMixer(block.child("mixer", mixer), config, config.time_step_rank, its);
    });
  };
  return parts;
}

ModelTraits mamba_traits(const FamilyConfig& config) {
  ModelTraits t = recurrent_traits(config.as<MambaConfig>());
  t.language = "backbone";
  t.default_sequence_length = 2048;
  t.refuse(Feature::sdpa, "inconsistent",
           t.class_name + " attends to nothing, and loads as eager only: expected eager");
  for (const Feature feature :
       {Feature::zero3, Feature::fsdp, Feature::lengths, Feature::packing, Feature::flash_attention,
        Feature::flash_attention_2, Feature::liger, Feature::quantization, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

std::unique_ptr<Model> build_mamba(Context& context, const MambaConfig& config, const DataConfig& data,
                                   const ModelOptions& options, DecoderParts parts) {
  std::unique_ptr<Model> model = build_text_family(context, config, data, options, std::move(parts));
  model->prompt_shape = {};  // it has no keys and values that a prefix could be of
  return model;
}

void refuse_mixer_targets(ConfigReader& reader, const FamilyConfig&, LoraConfig& lora) {
  refuse_mamba_targets(reader, lora, {"backbone.layers.0.mixer"});  // all of them are alike
  const std::vector<std::string>& names = lora.target_modules.names;
  if (lora.target_modules.all_linear || std::find(names.begin(), names.end(), "dt_proj") != names.end())
    reader.fail_found(
        "target_modules", "not-modelled",
        "it reaches dt_proj, which is not supported yet; expected names of other layers (in_proj, x_proj)");
}

}  // namespace oometer
