#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "ops/experts.h"
#include "ops/ops.h"

/// transformers 5.23, models/hy_v3/modeling_hy_v3.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"HYV3ForCausalLM", "HYV3Model",   "HYV3DecoderLayer",   "HYV3Attention",
                                 "HYV3MLP",         "HYV3RMSNorm", "HYV3RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"hy_v3", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 120'832;
  d.intermediate_size = 13'312;
  d.num_hidden_layers = 80;
  d.num_attention_heads = 64;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_experts", "num_local_experts", {.num_experts = 192, .num_experts_per_tok = 8});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 1536);
  c.experts.shared_intermediate_size =
      checked_product(c.experts.intermediate_size, reader.integer("num_shared_experts", 1));
  c.experts.layers.assign(static_cast<std::size_t>(c.num_hidden_layers), true);
  c.experts.layers.front() = false;
  read_mlp_layer_types(reader, c);
  if (!reader.boolean("enable_moe_fp32_combine", true))
    reader.fail_found("enable_moe_fp32_combine", "not-modelled",
                      "a sum of experts in the model's type is not supported yet: expected true");
  reader.ignore({"router_scaling_factor"});
  return c;
}

// HYV3TopKRouter.forward
Routing best_scaled_sigmoids(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  {
    const Tensor input = to(hidden_states, DType::float32), weight = to(router.weight, DType::float32);
    routing.router_logits = linear(input, weight, {});
  }
  const Tensor routing_weights = sigmoid(routing.router_logits);
  const Tensor scores_for_choice = add(routing_weights, router.e_score_correction_bias);
  TopK chosen = topk(scores_for_choice, router.top_k);  // the values stay in `_`
  Tensor top_k_weights = gather(routing_weights, chosen.indices);
  {
    Tensor total = sum(top_k_weights, {-1}, true);
    total = add_scalar(total);
    top_k_weights = div(top_k_weights, total);
  }
  top_k_weights = mul_scalar(top_k_weights);
  routing.topk_indices = std::move(chosen.indices);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(top_k_weights));
  return routing;
}

struct HYV3MoE {
  HYV3MoE(const Builder& builder, const TextConfig& c)
      : gate(builder.child("gate", "HYV3TopKRouter"), c, best_scaled_sigmoids),
        experts(make_experts(builder, "HYV3Experts", c)),
        module(builder.module) {
    gate.e_score_correction_bias = builder.kept_buffer({c.experts.num_experts});
    shared_experts = make_shared(builder.child("shared_experts", kNames.mlp), c);
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_in = call.argument(argument);
    Tensor hidden_states = view(hidden_in, {hidden_in.numel() / hidden_in.size(-1), hidden_in.size(-1)});
    const Routing routing = gate(hidden_states);  // the logits stay in `_`
    const Tensor routed_output = experts(hidden_states, routing.topk_indices, routing.topk_weights);
    Tensor combined;
    {
      const Tensor routed = to(routed_output, DType::float32);
      const Tensor shared = [&] {
        const Tensor output = shared_experts(hidden_states);
        return to(output, DType::float32);
      }();
      combined = add(routed, shared);
    }
    hidden_states = to(combined, hidden_states.dtype());
    combined.reset();
    return call.result(view(hidden_states, hidden_in.sizes()));
  }

  Router gate;
  Experts experts;
  LlamaMLP shared_experts;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  its.norms_at = HeadNorms::transposed;
  its.norm = rms_norm;
  its.norm_type = kNames.rms_norm;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) -> TextLayer::MLP {
    if (c.experts.are_in(index)) return HYV3MoE(layer.child("mlp", "HYV3MoE"), c);
    return LlamaMLP(layer.child("mlp", kNames.mlp), c);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  t.refuse(Feature::packing, "not-modelled", "this is not supported yet with " + t.class_name);
  return t;
}

}  // namespace

namespace family {
extern const Family hy_v3 = mixture_family<read, parts>(kClasses, kBlocks, nullptr, traits);
}  // namespace family

}  // namespace oometer
