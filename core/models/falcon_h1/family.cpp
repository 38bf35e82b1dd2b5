#include <memory>
#include <nlohmann/json.hpp>
#include <vector>

#include "config/reader.h"
#include "models/kit/mamba2.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "ops/ops.h"

/// transformers 5.23, models/falcon_h1/modeling_falcon_h1.py: each layer has a state space and attention side by side.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"FalconH1ForCausalLM",    "FalconH1Model", "FalconH1DecoderLayer",
                                 "FalconH1Attention",      "FalconH1MLP",   "FalconH1RMSNorm",
                                 "FalconH1RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"falcon_h1", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct FalconH1Config : TextConfig {
  bool projectors_bias = false;  ///< of the state space's output
  bool norms = false;            ///< mamba_rms_norm
  bool norms_before_gate = true;
  bool scales_down = false;  ///< the second of mlp_multipliers is not 1
  bool operator==(const FalconH1Config&) const = default;
};

FalconH1Config read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 128'000;
  d.intermediate_size = 14336;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 8192;
  d.has_pad_token = true;
  FalconH1Config c{read_text_sizes(reader, d)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  check_llama_heads(reader, c);
  read_mamba2_sizes(reader, c, {.key_head_dim = 256}, "mamba_d_ssm", 1024);
  c.projectors_bias = reader.boolean("projectors_bias", false);
  c.norms = reader.boolean("mamba_rms_norm", false);
  c.norms_before_gate = reader.boolean("mamba_norm_before_gate", true);
  if (const nlohmann::json* multipliers = reader.find("mlp_multipliers"))
    c.scales_down = multipliers->is_array() && multipliers->size() == 2 && (*multipliers)[1] != 1;
  reader.ignore({"layers_block_type", "layer_types", "num_logits_to_keep", "lm_head_multiplier", "embedding_multiplier",
                 "key_multiplier", "attention_out_multiplier", "attention_in_multiplier", "mamba_use_mlp",
                 "attn_layer_indices", "ssm_multipliers", "ssm_in_multiplier", "ssm_out_multiplier"});
  return c;
}

struct FalconH1MLP {
  FalconH1MLP(const Builder& builder, const FalconH1Config& c, const LigerConfig& kernels)
      : gate_proj(builder.child("gate_proj", "Linear"), c.hidden_size, c.intermediate_size, c.mlp_bias),
        up_proj(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, c.mlp_bias),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, c.mlp_bias),
        act_fn(c.hidden_act),
        liger(kernels.swiglu),
        scales_down(c.scales_down),
        module(builder.module) {}

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    Tensor y;
    if (liger) {  // LigerFalconH1SwiGLUMLP: both multipliers are before down_proj
      {
        const Tensor gate = gate_proj(x), up = up_proj(x);
        y = liger_silu_mul(gate, up, scales_down);
      }
      return call.result(down_proj(y));
    }
    {
      const Tensor up = up_proj(x);
      Tensor gate = gate_proj(x);
      gate = mul_scalar(gate);
      gate = activate(act_fn, gate);
      y = mul(up, gate);
    }
    {
      const Tensor down = down_proj(y);
      y = mul_scalar(down);
    }
    return call.result(y);
  }

  Linear gate_proj, up_proj, down_proj;
  Activation act_fn;
  bool liger, scales_down;
  ModuleId module;
};

AttentionParts scaled_keys() {
  AttentionParts its;
  its.scales_keys = true;
  return its;
}

/// FalconH1Model.__init__: each mixer's multipliers, clones of one vector, once all layers are there.
struct MupVectors {
  struct Clone {
    Builder mixer;
    std::shared_ptr<Tensor> made = std::make_shared<Tensor>();
  };
  std::shared_ptr<Tensor> of(const Builder& mixer) { return clones.emplace_back(Clone{mixer}).made; }
  void make(const FalconH1Config& c) const {
    const MixerConfig& m = c.mixer;
    const Shape sizes{1, 1, 2 * (m.value_size() + m.key_size()) + m.num_value_heads};
    const Builder& first = clones.front().mixer;
    const Tensor mup_vector = empty(*first.context, Op::ones_like, sizes, first.dtype);
    for (const Clone& clone : clones) *clone.made = clone.mixer.buffer(sizes, first.dtype);
  }

  std::vector<Clone> clones;
};

class FalconH1Layer final : public DecoderLayer {
 public:
  FalconH1Layer(const Builder& builder, const FalconH1Config& c, const ModelOptions& options, std::size_t index,
                MupVectors& mup_vectors)
      : feed_forward_(builder.child("feed_forward", kNames.mlp), c, options.liger),
        mamba_at_(builder.child("mamba", "FalconH1Mixer")),
        mamba_(mamba_at_, c, c.hidden_act, index,
               {.norm_type = "FalconH1RMSNormGated",
                .has_norm = c.norms,
                .norms_before_gate = c.norms_before_gate,
                .scales_in_float32 = true,
                .mup_vector = mup_vectors.of(mamba_at_),
                .output_bias = c.projectors_bias}),
        self_attn_(builder.child("self_attn", kNames.attention), c, options, scaled_keys()),
        input_layernorm_(builder.child("input_layernorm", kNames.rms_norm), norm_of(options.liger, rms_norm),
                         {c.hidden_size}),
        pre_ff_layernorm_(builder.child("pre_ff_layernorm", kNames.rms_norm), norm_of(options.liger, rms_norm),
                          {c.hidden_size}),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    Tensor residual = hidden_in;
    Tensor hidden_states = input_layernorm_(hidden_in);
    Tensor mamba_hidden_states = mamba_(hidden_states, positions.padding_mask).output;
    mamba_hidden_states = mul_scalar(mamba_hidden_states);
    AttentionOutputs attention;  // the weights stay in `_`
    {
      const Tensor scaled = mul_scalar(hidden_states);
      attention = self_attn_(scaled, positions, attention_mask);
    }
    Tensor attention_hidden_states = std::move(attention.output);
    attention_hidden_states = mul_scalar(attention_hidden_states);
    hidden_states = add(mamba_hidden_states, attention_hidden_states);
    hidden_states = add(residual, hidden_states);
    residual = hidden_states;
    hidden_states = pre_ff_layernorm_(hidden_states);
    hidden_states = feed_forward_(hidden_states);
    return add(residual, hidden_states);
  }

 private:
  FalconH1MLP feed_forward_;
  Builder mamba_at_;
  Mamba2Mixer mamba_;
  TextAttention self_attn_;
  Norm input_layernorm_, pre_ff_layernorm_;
  ModuleId module_;
};

DecoderParts parts(const FalconH1Config& config, const ModelOptions& options) {
  DecoderParts parts;
  const auto mup_vectors = std::make_shared<MupVectors>();
  parts.layer = [config, options, mup_vectors](const Builder& layer,
                                               std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<FalconH1Layer>(layer, config, options, index, *mup_vectors);
  };
  parts.per_layer = [config, mup_vectors](const Builder&) -> std::unique_ptr<PerLayerInputs> {
    mup_vectors->make(config);  // behind the rotary embedding
    mup_vectors->clones.clear();
    return nullptr;
  };
  parts.last_norm = "final_layernorm";
  parts.scale = mul_scalar;
  parts.logits = [](const Tensor& logits) { return mul_scalar(logits); };
  parts.fused_states = mul_scalar;
  parts.is_recurrent = [](std::size_t) { return false; };  // each layer gets both masks
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = recurrent_traits(config.as<FalconH1Config>());
  allow_compared(t, {Feature::liger, Feature::quantization, Feature::fsdp});
  return t;
}

void refuse_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
  std::vector<std::string> mixers;
  for (std::int64_t i = 0; i < config.as<FalconH1Config>().num_hidden_layers; ++i)
    mixers.push_back("model.layers." + std::to_string(i) + ".mamba");
  refuse_mamba_targets(reader, lora, mixers);
}

}  // namespace

namespace family {
extern const Family falcon_h1 = [] {
  Family its = text_family_of<FalconH1Config, read, parts>(kClasses, kBlocks, traits);
  its.convert_targets = refuse_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
