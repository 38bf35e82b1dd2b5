#include <algorithm>
#include <string>

#include "config/reader.h"
#include "models/kit/mamba2.h"
#include "models/kit/mixture.h"
#include "ops/ops.h"

/// transformers 5.23, models/nemotron_h/modeling_nemotron_h.py: a layer is Mamba-2, attention, an MLP or experts.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"NemotronHForCausalLM",
                                 "NemotronHModel",
                                 "NemotronHBlock",
                                 "NemotronHAttention",
                                 "NemotronHMLP",
                                 "NemotronHRMSNorm",
                                 ""};
constexpr ModelClass kClasses[] = {{"nemotron_h", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

/// What a layer is, by the letters of hybrid_override_pattern.
enum class Mixer : char { mamba = 'M', attention = '*', mlp = '-', experts = 'E' };

struct NemotronHConfig : TextConfig {
  std::vector<Mixer> kinds;
  std::int64_t latent_size = 0;  ///< moe_latent_size, that experts work on; 0: hidden_size

  bool operator==(const NemotronHConfig&) const = default;
};

void read_kinds(ConfigReader& reader, NemotronHConfig& c) {
  std::vector<std::string> types = reader.texts("layers_block_type");
  if (types.empty()) types = reader.texts("layer_types");
  const std::string pattern = reader.text("hybrid_override_pattern", "");
  if (types.empty() && pattern.empty()) types = {"linear_attention", "moe", "full_attention", "mlp"};
  for (const std::string& type : types) {
    if (type == "linear_attention" || type == "mamba")
      c.kinds.push_back(Mixer::mamba);
    else if (type == "full_attention" || type == "attention")
      c.kinds.push_back(Mixer::attention);
    else if (type == "mlp")
      c.kinds.push_back(Mixer::mlp);
    else if (type == "moe")
      c.kinds.push_back(Mixer::experts);
    else
      reader.fail("layers_block_type", "inconsistent",
                  "found \"" + type + "\"; expected \"linear_attention\", \"full_attention\", \"mlp\" or \"moe\"");
  }
  if (types.empty())
    for (const char letter : pattern) {
      if (std::string("M*-E").find(letter) == std::string::npos)
        reader.fail("hybrid_override_pattern", "inconsistent",
                    std::string("found \"") + letter + "\"; expected M, *, - or E for each layer");
      else
        c.kinds.push_back(static_cast<Mixer>(letter));
    }
  if (c.kinds.empty()) c.kinds.push_back(Mixer::mamba);  // something is wrong already
  c.num_hidden_layers = static_cast<std::int64_t>(c.kinds.size());
  for (const Mixer kind : c.kinds) {
    c.mixer.layers.push_back(kind == Mixer::mamba);
    c.experts.layers.push_back(kind == Mixer::experts);
  }
}

NemotronHConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 131'072;
  d.intermediate_size = 21504;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 4096;
  d.has_pad_token = true;
  NemotronHConfig c;
  static_cast<TextConfig&>(c) = read_text_sizes(reader, d, 128);
  c.tie_word_embeddings = false;  // its class ties nothing
  c.hidden_act = reader.activation("mlp_hidden_act", Activation::relu2);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  check_llama_heads(reader, c);
  c.rotary_dim = -1;
  read_experts(reader, c, "n_routed_experts", "num_local_experts", {.num_experts = 8, .num_experts_per_tok = 2});
  ExpertsConfig& e = c.experts;
  e.intermediate_size = reader.integer("moe_intermediate_size", 7688);
  e.shared_intermediate_size = reader.integer("moe_shared_expert_intermediate_size", 7688);
  e.n_group = reader.integer("n_group", 1);
  e.topk_group = reader.integer("topk_group", 1);
  e.norm_topk_prob = reader.boolean("norm_topk_prob", true);
  if (e.num_experts % e.n_group != 0 || e.num_experts / e.n_group < 2 || e.topk_group > e.n_group)
    reader.fail("n_group", "inconsistent",
                "found " + std::to_string(e.n_group) + "; expected a divisor of n_routed_experts (" +
                    std::to_string(e.num_experts) + "), groups of two experts at least");
  c.latent_size = reader.optional_integer("moe_latent_size").value_or(0);
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::mamba2 | Kernels::causal_conv1d;
  m.key_head_dim = reader.integer("ssm_state_size", 128);
  m.num_value_heads = reader.integer("mamba_num_heads", 128);
  m.value_head_dim = reader.integer("mamba_head_dim", 64);
  m.num_key_heads = reader.integer("mamba_n_groups", reader.integer("n_groups", 8));
  m.conv_kernel = reader.integer("mamba_d_conv", reader.integer("conv_kernel", 4));
  m.conv_bias = reader.boolean("mamba_conv_bias", reader.boolean("use_conv_bias", true));
  m.chunk_size = reader.integer("mamba_chunk_size", reader.integer("chunk_size", 128));
  m.bias = reader.boolean("use_bias", false);
  read_mamba_groups(reader, c);
  read_kinds(reader, c);
  reader.ignore({"attention_bias",
                 "sliding_window",
                 "hidden_dropout",
                 "mamba_proj_bias",
                 "mamba_hidden_act",
                 "mamba_ssm_cache_dtype",
                 "moe_shared_expert_overlap",
                 "n_shared_experts",
                 "routed_scaling_factor",
                 "num_nextn_predict_layers",
                 "mtp_layers_block_type",
                 "mtp_hybrid_override_pattern",
                 "rescale_prenorm_residual",
                 "residual_in_fp32",
                 "expand",
                 "layer_norm_epsilon",
                 "time_step_min",
                 "time_step_max",
                 "time_step_limit",
                 "time_step_floor",
                 "use_mamba_kernels",
                 "num_logits_to_keep",
                 "mamba_expand",
                 "mamba_dt_min",
                 "mamba_dt_max",
                 "mamba_dt_limit",
                 "mamba_dt_init_floor",
                 "norm_eps",
                 "partial_rotary_factor",
                 "time_step_rank",
                 "attention_head_dim"});
  return c;
}

/// NemotronHMoE: DeepseekV3MoE with experts without a gate, which may work on fewer elements.
struct Moe {
  Moe(const Builder& at, const NemotronHConfig& c) : module(at.module) {
    const std::int64_t inner = c.latent_size == 0 ? c.hidden_size : c.latent_size;
    experts = Experts(at.child("experts", "NemotronHExperts"), c.experts.num_experts, inner,
                      c.experts.intermediate_size, c.hidden_act, {.has_gate = false});
    const Builder gate_at = at.child("gate", "NemotronHTopkRouter");
    gate = Router(gate_at, c, best_of_groups);
    gate.e_score_correction_bias = gate_at.kept_buffer({c.experts.num_experts});
    TextConfig shared = c;
    shared.intermediate_size = c.experts.shared_intermediate_size;
    const Builder shared_at = at.child("shared_experts", kNames.mlp);
    shared_experts = PlainMLP(shared_at, shared, "up_proj", "down_proj", c.mlp_bias);
    if (c.latent_size == 0) return;
    fc1_latent_proj = Linear(at.child("fc1_latent_proj", "Linear"), c.hidden_size, inner, c.mlp_bias);
    fc2_latent_proj = Linear(at.child("fc2_latent_proj", "Linear"), inner, c.hidden_size, c.mlp_bias);
  }

  Tensor operator()(const Tensor& hidden_in) const {
    ModuleCall call(hidden_in.context(), module);
    const Tensor residuals = call.argument(hidden_in);
    const Routing routing = gate(residuals);
    Tensor hidden_states = view(residuals, {residuals.numel() / residuals.size(-1), residuals.size(-1)});
    if (fc1_latent_proj.weight) hidden_states = fc1_latent_proj(hidden_states);
    hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
    if (fc2_latent_proj.weight) hidden_states = fc2_latent_proj(hidden_states);
    hidden_states = view(hidden_states, residuals.sizes());
    {
      const Tensor shared = (*shared_experts)(residuals);
      hidden_states = add(hidden_states, shared);
    }
    return call.result(hidden_states);
  }

  Experts experts;
  Router gate;
  std::optional<PlainMLP> shared_experts;
  Linear fc1_latent_proj, fc2_latent_proj;
  ModuleId module;
};

/// NemotronHBlock.
struct Block : public DecoderLayer {
  Block(const Builder& builder, const NemotronHConfig& c, const ModelOptions& options, std::size_t index)
      : norm(builder.child("norm", kNames.rms_norm), rms_norm_cast_weight, {c.hidden_size}), module(builder.module) {
    const auto at = [&](const char* type) { return builder.child("mixer", type); };
    const auto alone = [](const auto& of) {
      return [of](const Tensor& x, const PositionEmbeddings&, const Tensor&) { return AttentionOutputs{of(x), {}}; };
    };
    switch (c.kinds[index]) {
      case Mixer::mamba:
        mixer = [mamba = Mamba2Mixer(at("NemotronHMamba2Mixer"), c, Activation::silu, index,
                                     {.norm_type = "NemotronHRMSNormGated"})](
                    const Tensor& x, const PositionEmbeddings&, const Tensor& mask) { return mamba(x, mask); };
        break;
      case Mixer::attention: {
        AttentionParts its;
        its.rotate = nullptr;
        mixer = TextAttention(at(kNames.attention), c, options, its);
        break;
      }
      case Mixer::mlp:
        mixer = alone(PlainMLP(at(kNames.mlp), c, "up_proj", "down_proj", c.mlp_bias));
        break;
      case Mixer::experts:
        mixer = alone(Moe(at("NemotronHMoE"), c));
        break;
    }
  }

  Tensor operator()(const Tensor& residual, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(residual.context(), module);
    Tensor hidden_states;
    {
      if (auto* const modules = residual.context().modules) modules->read(norm.weight);  // its dtype
      const Tensor cast = to(residual, norm.weight.dtype());
      hidden_states = norm(cast);
    }
    AttentionOutputs mixed = mixer(hidden_states, positions, attention_mask);
    hidden_states = std::move(mixed.output);  // the weights stay in `_`
    return add(residual, hidden_states);
  }

  Norm norm;
  std::function<AttentionOutputs(const Tensor&, const PositionEmbeddings&, const Tensor&)> mixer;
  ModuleId module;
};

DecoderParts parts(const NemotronHConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) -> std::unique_ptr<DecoderLayer> {
    return std::make_unique<Block>(layer, config, options, index);
  };
  parts.kind = [kinds = config.kinds](std::size_t i) { return static_cast<int>(kinds[i]); };
  parts.embed_tokens = "embeddings";
  parts.last_norm = "norm_f";
  parts.norm = final_norm(rms_norm_cast_weight);
  parts.logits = [](const Tensor& logits) { return to(logits, DType::float32); };
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<NemotronHConfig>();
  ModelTraits t = recurrent_traits(c);
  t.lora_targets = {"q_proj", "k_proj", "v_proj", "o_proj"};
  t.allow({Feature::quantization, Feature::zero3, Feature::fsdp});
  t.has_experts = std::find(c.kinds.begin(), c.kinds.end(), Mixer::experts) != c.kinds.end();
  return t;
}

void refuse_targets(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora) {
  const std::vector<Mixer>& kinds = config.as<NemotronHConfig>().kinds;
  std::vector<std::string> mixers;
  for (std::size_t i = 0; i < kinds.size(); ++i)
    if (kinds[i] == Mixer::mamba) mixers.push_back("model.layers." + std::to_string(i) + ".mixer");
  refuse_mamba_targets(reader, lora, mixers);
}

}  // namespace

namespace family {
extern const Family nemotron_h = [] {
  Family its = text_family_of<NemotronHConfig, read, parts>(kClasses, kBlocks, traits);
  its.convert_targets = refuse_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
