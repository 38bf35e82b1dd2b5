#include <optional>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/lfm2/lfm2.h"
#include "ops/experts.h"
#include "ops/ops.h"

/// transformers 5.23, models/lfm2_moe/modeling_lfm2_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Lfm2MoeForCausalLM", "Lfm2MoeModel",   "Lfm2MoeDecoderLayer",   "Lfm2MoeAttention",
                                 "Lfm2MoeMLP",         "Lfm2MoeRMSNorm", "Lfm2MoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"lfm2_moe", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 65536;
  d.hidden_size = 2048;
  d.intermediate_size = 7168;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 128'000;
  d.tie_word_embeddings = d.has_pad_token = true;
  TextConfig c = read_lfm2_text(reader, d);
  if (!reader.has("layer_types"))
    reader.fail("layer_types", "inconsistent",
                "found none; expected a type for each layer, \"conv\" or \"full_attention\"");
  read_mixer_layers(reader, c, "conv", 1);
  read_experts(reader, c, "num_experts", "num_local_experts", {.num_experts = 32, .num_experts_per_tok = 4});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 1792);
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", true);
  c.experts.has_bias = reader.boolean("use_expert_bias", true);
  const std::int64_t dense = reader.integer("num_dense_layers", 2, non_negative);
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) c.experts.layers.push_back(i >= dense);
  reader.ignore({"routed_scaling_factor"});
  return c;
}

/// Lfm2MoeTopKRouter.forward: sigmoid scores in the logits' type, chosen with a bias where there is one.
Routing best_scores(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  routing.router_logits = linear(hidden_states, router.weight, {});
  Tensor& weights = routing.topk_weights;
  weights = sigmoid(routing.router_logits);
  Tensor scores_for_routing;
  TopK best;  // its values stay in `_`
  if (router.e_score_correction_bias) {
    scores_for_routing = add(weights, router.e_score_correction_bias);
    best = topk(scores_for_routing, router.top_k);
    weights = gather(weights, best.indices);
  } else {
    best = topk(weights, router.top_k);
    weights = std::move(best.values);
  }
  if (router.norm_topk_prob) {
    Tensor total = sum(weights, {-1}, true);
    total = add_scalar(total);
    weights = div(weights, total);
  }
  weights = mul_scalar(weights);
  routing.topk_indices = best.indices;
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  return make_lfm2_layer(
      builder, c, options, index, "Lfm2MoeShortConv",
      [&](const Builder& layer) -> std::function<Tensor(const Tensor&)> {
        if (!c.experts.are_in(index))
          return Lfm2MLP(layer.child("feed_forward", kNames.mlp), c.hidden_size, c.intermediate_size);
        const Builder at = layer.child("feed_forward", "Lfm2MoeSparseMoeBlock");
        SparseMoeBlock block(at);
        block.experts = make_experts(at, "Lfm2MoeExperts", c, {.checkpoint = kNumberedProjections});
        Router gate(at.child("gate", "Lfm2MoeTopKRouter"), c, best_scores);
        if (c.experts.has_bias)
          gate.e_score_correction_bias =
              at.buffer({c.experts.num_experts}, at.context->construction ? at.dtype : DType::float32);
        block.gate = std::move(gate);
        return block;
      });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return lfm2_parts(parts_of(config, options, make_layer));
}

}  // namespace

namespace family {
extern const Family lfm2_moe =
    text_family<read, parts>(kClasses, kBlocks, generating_traits_with<Feature::quantization, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
