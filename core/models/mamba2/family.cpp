#include <algorithm>
#include <string>
#include <vector>

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

struct Mamba2Config : TextConfig {
  bool residual_in_fp32 = true;

  bool operator==(const Mamba2Config&) const = default;
};

Mamba2Config read(ConfigReader& reader) {
  Mamba2Config c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 32768);
  c.hidden_size = reader.integer("hidden_size", 4096);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 64, layer_count);
  c.hidden_act = reader.activation("hidden_act", Activation::silu);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
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
  m.num_value_heads = reader.integer("num_heads", 128);
  m.value_head_dim = reader.integer("head_dim", 64);
  m.num_key_heads = reader.integer("n_groups", 8);
  m.key_head_dim = reader.integer("state_size", 128);
  m.conv_kernel = reader.integer("conv_kernel", 4);
  m.conv_bias = reader.boolean("use_conv_bias", true);
  m.bias = reader.boolean("use_bias", false);
  m.chunk_size = reader.integer("chunk_size", 256);
  c.intermediate_size = checked_product(reader.integer("expand", 2), c.hidden_size);
  if (m.value_size() != c.intermediate_size)
    reader.fail_found(
        "num_heads", "inconsistent",
        "expected heads of expand * hidden_size (" + std::to_string(c.intermediate_size) + ") elements together");
  read_mamba_groups(reader, c);
  reader.ignore({"pad_token_id", "layer_norm_epsilon", "time_step_rank", "time_step_min", "time_step_max",
                 "time_step_floor", "time_step_limit", "rescale_prenorm_residual", "rms_norm", "norm_before_gate",
                 "intermediate_size"});
  return c;
}

DecoderParts parts(const Mamba2Config& config, const ModelOptions&) {
  DecoderParts parts = mamba_model_parts();
  parts.layer = [config](const Builder& layer, std::size_t) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<MambaBlock>(layer, config, config.residual_in_fp32, [&](const Builder& block) {
      return [mixer = Mamba2Mixer(block.child("mixer", "Mamba2Mixer"), config, config.hidden_act,
                                  {.norm_type = "MambaRMSNormGated"})](const Tensor& hidden_states,
                                                                       const Tensor& attention_mask) {
        return mixer(hidden_states, attention_mask).output;
      };
    });
  };
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = recurrent_traits(config.as<Mamba2Config>());
  t.language = "backbone";
  t.default_sequence_length = 2048;
  t.refuse(Feature::sdpa, "inconsistent",
           "Mamba2ForCausalLM attends to nothing, and loads as eager only: expected eager");
  for (const Feature feature :
       {Feature::zero3, Feature::fsdp, Feature::lengths, Feature::packing, Feature::flash_attention,
        Feature::flash_attention_2, Feature::liger, Feature::quantization, Feature::chunked_cross_entropy})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

void refuse_targets(ConfigReader& reader, const FamilyConfig&, LoraConfig& lora) {
  refuse_mamba_targets(reader, lora, {"backbone.layers.0.mixer"});  // all of them are alike
}

}  // namespace

namespace family {
extern const Family mamba2 = [] {
  Family its = text_family_of<Mamba2Config, read, parts>(kClasses, kBlocks, traits);
  its.build = [](Context& context, const FamilyConfig& config, const DataConfig& data, const ModelOptions& options) {
    const auto& c = config.as<Mamba2Config>();
    std::unique_ptr<Model> model = build_text_family(context, c, data, options, parts(c, options));
    model->prompt_shape = {};  // it has no keys and values that a prefix could be of
    return model;
  };
  its.convert_targets = refuse_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
