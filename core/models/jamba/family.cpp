#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/mamba.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "peft/config.h"

/// transformers 5.23, models/jamba/modeling_jamba.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "JambaForCausalLM", "JambaModel", "JambaMambaDecoderLayer", "JambaAttention", "JambaMLP", "JambaRMSNorm", ""};
constexpr ModelClass kClasses[] = {{"jamba", kNames.causal_lm}, {"jamba", "JambaForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct JambaConfig : TextConfig {
  std::int64_t mamba_dt_rank = 0;

  bool operator==(const JambaConfig&) const = default;
};

JambaConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 65536;
  d.intermediate_size = 14336;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 262'144;
  d.has_pad_token = true;
  JambaConfig c{read_text_sizes(reader, d)};
  c.rotary_dim = -1;  // it has none
  if (c.num_attention_heads % c.num_key_value_heads != 0)
    reader.fail_found("num_key_value_heads", "inconsistent",
                      "expected a divisor of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  const auto layers_with = [&](const char* period_key, std::int64_t period, const char* offset_key,
                               std::int64_t offset) {
    period = reader.integer(period_key, period);
    offset = reader.integer(offset_key, offset, non_negative);
    if (offset >= period)
      reader.fail_found(offset_key, "inconsistent",
                        std::string("expected less than ") + period_key + " (" + std::to_string(period) + ")");
    std::vector<bool> layers;
    for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) layers.push_back(i % period == offset);
    return layers;
  };
  if (reader.integer("num_experts", reader.integer("num_local_experts", 16)) > 1) {
    read_experts(reader, c, "num_experts", "num_local_experts",
                 {.num_experts = 16, .num_experts_per_tok = 2, .balances = true});
    c.experts.intermediate_size = c.intermediate_size;
    c.experts.layers = layers_with("expert_layer_period", 2, "expert_layer_offset", 1);
  } else {
    c.experts.layers.assign(static_cast<std::size_t>(c.num_hidden_layers), false);
    reader.ignore({"num_experts_per_tok", "expert_layer_period", "expert_layer_offset", "output_router_logits",
                   "router_aux_loss_coef"});
  }
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::mamba | Kernels::causal_conv1d;
  m.layers = layers_with("attn_layer_period", 8, "attn_layer_offset", 4);
  m.layers.flip();
  m.num_value_heads = checked_product(reader.integer("mamba_expand", 2), c.hidden_size);
  m.value_head_dim = 1;
  m.key_head_dim = m.chunk_size = reader.integer("mamba_d_state", 16);
  m.conv_kernel = reader.integer("mamba_d_conv", 4);
  m.conv_bias = reader.boolean("mamba_conv_bias", true);
  m.bias = reader.boolean("mamba_proj_bias", false);
  c.mamba_dt_rank = (c.hidden_size + 15) / 16;
  if (!reader.is_auto("mamba_dt_rank")) c.mamba_dt_rank = reader.integer("mamba_dt_rank", c.mamba_dt_rank);
  // Another way to scan, if a package is installed; and one that torch.compile alone takes.
  reader.refuse("use_mambapy", "it is not supported yet");
  reader.ignore(
      {"use_mamba_kernels", "use_associative_scan", "mamba_inner_layernorms", "num_logits_to_keep", "sliding_window"});
  return c;
}

/// JambaTopKRouter.forward.
Routing best_unnormalized(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  routing.router_logits = linear(hidden_states, router.weight, {});
  const Tensor routing_weights = softmax(routing.router_logits, DType::float32);
  TopK best = topk(routing_weights, router.top_k);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(to(best.values, hidden_states.dtype()));
  routing.topk_indices = std::move(best.indices);
  return routing;
}

TextLayer::MLP make_feed_forward(const Builder& layer, const JambaConfig& c, std::size_t index) {
  if (!c.experts.are_in(index)) return LlamaMLP(layer.child("feed_forward", kNames.mlp), c);
  const Builder at = layer.child("feed_forward", "JambaSparseMoeBlock");
  SparseMoeBlock block(at);
  block.gate = Router(at.child("router", "JambaTopKRouter"), c, best_unnormalized);
  block.experts = make_experts(at, "JambaExperts", c);
  return block;
}

/// JambaAttentionDecoderLayer, JambaMambaDecoderLayer.
std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const JambaConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  if (c.mixer.is_in(index)) {
    layer->self_attn =
        [mamba = MambaMixer(
             builder.child("mamba", "JambaMambaMixer"), c, c.mamba_dt_rank, index,
             {.norm = rms_norm, .norm_type = kNames.rms_norm, .hands_to_kernel = false, .makes_rates = true})](
            const Tensor& hidden_states, const PositionEmbeddings&, const Tensor& attention_mask) {
          return AttentionOutputs{mamba(hidden_states, attention_mask), {}};
        };
  } else {
    AttentionParts its;
    its.rotate = nullptr;
    layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  }
  layer->mlp = make_feed_forward(builder, c, index);
  layer->input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->feedforward_norm = Norm(builder.child("pre_ff_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  return layer;
}

DecoderParts parts(const JambaConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) {
    return make_layer(layer, config, options, index);
  };
  parts.norm = final_norm(rms_norm);
  parts.last_norm = "final_layernorm";
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = recurrent_traits(config.as<JambaConfig>());
  t.default_sequence_length = 2048;
  t.refuse(Feature::packing, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

void refuse_targets(ConfigReader& reader, const FamilyConfig&, LoraConfig& lora) {
  refuse_dt_proj(reader, lora, "q_proj, in_proj");
}

}  // namespace

namespace family {
extern const Family jamba = [] {
  Family its = text_family_of<JambaConfig, read, balanced<parts, JambaConfig>>(kClasses, kBlocks, traits);
  its.convert_targets = refuse_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
