#include "config/reader.h"
#include "models/kit/mixture.h"
#include "ops/experts.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/ernie4_5_moe/modeling_ernie4_5_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Ernie4_5_MoeForCausalLM",    "Ernie4_5_MoeModel", "Ernie4_5_MoeDecoderLayer",
                                 "Ernie4_5_MoeAttention",      "Ernie4_5_MoeMLP",   "Ernie4_5_MoeRMSNorm",
                                 "Ernie4_5_MoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"ernie4_5_moe", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 103424;
  d.hidden_size = 2560;
  d.intermediate_size = 12288;
  d.num_hidden_layers = 28;
  d.num_attention_heads = 20;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 131'072;
  d.tie_word_embeddings = d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = c.mlp_bias = reader.boolean("use_bias", false);
  c.attention_dropout = 0;  // Ernie4_5_MoeAttention
  check_llama_heads(reader, c);
  read_experts(reader, c, "moe_num_experts", "num_experts",
               {.num_experts = 64, .num_experts_per_tok = reader.integer("moe_k", 6), .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 1536);
  c.experts.shared_intermediate_size =
      c.experts.intermediate_size * reader.integer("moe_num_shared_experts", 2, non_negative);
  const std::int64_t interval = reader.integer("moe_layer_interval", 1),
                     first = reader.integer("moe_layer_start_index", 1, non_negative),
                     last = reader.integer("moe_layer_end_index", -1, {-1, c.num_hidden_layers});
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i)
    c.experts.layers.push_back((i + 1) % interval == 0 && i >= first && (last == -1 || i <= last));
  reader.ignore({"moe_norm_min"});
  return c;
}

/// Ernie4_5_MoeTopKRouter: in float32 whatever autocast says. So are its parameters, but in zero.Init; the bias does
/// not train.
struct StaticsRouter {
  StaticsRouter(Builder at, const TextConfig& c)
      : top_k(c.experts.num_experts_per_tok), router_logits(c.experts.router_logits) {
    at.dtype = DType::float32;
    const ParameterSizes own[] = {{"weight", {c.experts.num_experts, c.hidden_size}}};
    if (at.wrapping) wrapper = at.wrapping->wrap_parameters(at, own, false);
    module = at.module;
    weight = at.parameter(own[0].name, own[0].sizes);
    const Builder moe_statics = at.child("moe_statics", "Ernie4_5_MoeStatics");
    statics = moe_statics.module;
    e_score_correction_bias = moe_statics.parameter("e_score_correction_bias", {1, c.experts.num_experts});
    e_score_correction_bias->leaf_requires_grad = false;
  }

  Routing operator()(const Tensor& hidden_in) const {
    Context& context = hidden_in.context();
    const NamedParameter own[] = {{"weight", weight}};
    const ParameterValues values(wrapper, own);
    ModuleCall call(context, module);
    const Tensor hidden_states = call.argument(hidden_in);
    const DType dtype = hidden_states.dtype();
    Routing routing;
    TopK chosen;  // the values stay in `_`
    {
      const Scoped<bool> without_autocast(context.autocast.enabled, false);
      {
        const Tensor input = to(hidden_states, DType::float32);
        const Tensor as_float = to(values("weight", weight), DType::float32);
        routing.router_logits = linear(input, as_float, {});
      }
      Tensor routing_weights = softmax(routing.router_logits, DType::float32);
      {
        ModuleCall of_statics(context, statics);
        const Tensor scores = add(routing_weights, reshape(e_score_correction_bias, {weight.size(0)}));
        chosen = topk(scores, top_k);
      }
      routing_weights = gather(routing_weights, chosen.indices);
      Tensor total = sum(routing_weights, {-1}, true);
      total = clamp(total, false);
      routing.topk_weights = div(routing_weights, total);
    }
    routing.topk_weights = call.result(to(routing.topk_weights, dtype));
    routing.topk_indices = std::move(chosen.indices);
    routing.router_logits = call.result(std::move(routing.router_logits));
    if (router_logits && !context.recomputing) router_logits->of_layers.push_back(routing.router_logits);
    return routing;
  }

  Tensor weight, e_score_correction_bias;
  std::int64_t top_k;
  ModuleId module = 0, statics = 0;
  std::shared_ptr<const ParametersWrapper> wrapper;  ///< null: none
  std::shared_ptr<RouterLogits> router_logits;       ///< ExpertsConfig::router_logits
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  its.rotate = rotate_spread_float32;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) -> TextLayer::MLP {
    if (c.experts.are_in(index)) {
      const Builder at = layer.child("mlp", "Ernie4_5_MoeSparseMoeBlock");
      SparseMoeBlock block(at);
      block.gate = StaticsRouter(at.child("gate", "Ernie4_5_MoeTopKRouter"), c);
      block.experts = make_experts(at, "Ernie4_5_MoeExperts", c);
      if (c.experts.shared_intermediate_size != 0)
        block.shared_experts = make_shared(at.child("shared_experts", kNames.mlp), c);
      return block;
    }
    return LlamaMLP(layer.child("mlp", kNames.mlp), c);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.rotary = embed_positions_float32;
  parts.head_bias = config.qkv_bias;  // use_bias
  return parts;
}

}  // namespace

namespace family {
extern const Family ernie4_5_moe =
    mixture_family<read, parts>(kClasses, kBlocks, convert_mixture_targets, traits_with<Feature::quantization>);
}  // namespace family

}  // namespace oometer
