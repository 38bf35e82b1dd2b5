#include <algorithm>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/hunyuan_v1_dense/hunyuan_v1_dense.h"
#include "models/kit/mixture.h"
#include "ops/experts.h"
#include "ops/ops.h"

/// transformers 5.23, models/hunyuan_v1_moe/modeling_hunyuan_v1_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"HunYuanMoEV1ForCausalLM",    "HunYuanMoEV1Model", "HunYuanMoEV1DecoderLayer",
                                 "HunYuanMoEV1Attention",      "HunYuanMoEV1Moe",   "HunYuanMoEV1RMSNorm",
                                 "HunYuanMoEV1RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"hunyuan_v1_moe", kNames.causal_lm},
                                   {"hunyuan_v1_moe", "HunYuanMoEV1ForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

/// A number for all layers, or a list of one for each, which must be the same.
std::int64_t read_same(ConfigReader& reader, const char* key, std::int64_t usual) {
  if (!reader.is_list(key)) return reader.integer(key, usual);
  const std::vector<std::int64_t> each = reader.integers(key);
  if (each.empty()) return usual;
  if (std::any_of(each.begin(), each.end(), [&](std::int64_t one) { return one != each[0]; }))
    reader.fail(key, "not-modelled", "found different numbers; layers that differ in it are not supported yet");
  return each[0];
}

TextConfig read(ConfigReader& reader) {
  TextConfig c = read_hunyuan_text(reader, kNames);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 1, .num_experts_per_tok = read_same(reader, "moe_topk", 1)});
  c.experts.intermediate_size = c.intermediate_size;
  // What the modelling code of 5.x never reads.
  reader.ignore({"moe_intermediate_size",
                 "num_shared_expert",
                 "moe_layer_num_skipped",
                 "use_mixed_mlp_moe",
                 "use_qk_norm",
                 "use_cla",
                 "cla_share_factor",
                 "moe_drop_tokens",
                 "moe_random_routing_dropped_token",
                 "capacity_factor",
                 "norm_topk_prob",
                 "routed_scaling_factor",
                 "group_limited_greedy",
                 "n_group",
                 "topk_group",
                 "attention_head_dim",
                 "org_vocab_size",
                 "mlp_bias",
                 "norm_type",
                 "position_embedding_xdrope",
                 "use_rotary_pos_emb",
                 "im_start_id",
                 "im_end_id",
                 "im_newline_id",
                 "image_token_id",
                 "text_start_id",
                 "text_end_id",
                 "mask_init_id",
                 "pad_id",
                 "eod_id",
                 "kv_lora_rank",
                 "q_lora_rank",
                 "qk_rope_head_dim",
                 "qk_nope_head_dim",
                 "v_head_dim",
                 "use_mla",
                 "class_num",
                 "pool_type",
                 "add_classification_head",
                 "dense_list",
                 "router_aux_loss_coef"});
  return c;
}

/// HunYuanMoEV1Gate: its projection is float32 whatever the model is, but in zero.Init.
struct FloatGate {
  FloatGate(const Builder& at, const TextConfig& c) : top_k(c.experts.num_experts_per_tok), module(at.module) {
    Builder as_float = at;
    as_float.dtype = DType::float32;
    wg = Linear(as_float.child("wg", "Linear"), c.hidden_size, c.experts.num_experts, false);
  }

  Routing operator()(const Tensor& hidden_in) const {
    ModuleCall call(hidden_in.context(), module);
    Tensor hidden_states = call.argument(hidden_in);
    if (wg.weight.dtype() == DType::float32) hidden_states = to(hidden_states, DType::float32);
    Routing routing;
    routing.router_logits = wg(hidden_states);
    Tensor routing_weights = softmax(routing.router_logits, DType::float32);
    {
      TopK best = topk(routing_weights, top_k);
      routing_weights = std::move(best.values);
      routing.topk_indices = std::move(best.indices);
    }
    {
      const Tensor total = sum(routing_weights, {-1}, true);
      routing_weights = div_in_place(std::move(routing_weights), total);
    }
    routing.topk_weights = call.result(to(routing_weights, routing.router_logits.dtype()));
    routing.router_logits = call.result(std::move(routing.router_logits));
    return routing;
  }

  Linear wg;
  std::int64_t top_k;
  ModuleId module;
};

/// HunYuanMoEV1Moe: all tokens get the shared MLP, as a batch of samples.
struct MoeBesideShared {
  MoeBesideShared(const Builder& at, const TextConfig& c, const LigerConfig& kernels)
      : gate(at.child("gate", "HunYuanMoEV1Gate"), c),
        experts(make_experts(at, "HunYuanMoEV1Experts", c)),
        shared_mlp(at.child("shared_mlp", "HunYuanMoEV1MLP"), c),
        module(at.module) {
    experts.liger = kernels.swiglu;
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    Tensor hidden_states = call.argument(argument);
    const Shape sizes = hidden_states.sizes();
    const Tensor hidden_states_mlp = shared_mlp(hidden_states);
    hidden_states = view(hidden_states, {hidden_states.numel() / sizes[-1], sizes[-1]});
    const Routing routing = gate(hidden_states);
    Tensor final_hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
    final_hidden_states = view(final_hidden_states, sizes);
    return call.result(add(final_hidden_states, hidden_states_mlp));
  }

  FloatGate gate;
  Experts experts;
  LlamaMLP shared_mlp;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  return pre_norm_layer(builder, c, options, hunyuan_attention(kNames), [&](const Builder& layer) {
    return MoeBesideShared(layer.child("mlp", kNames.mlp), c, options.liger);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::zero3, Feature::liger>(config);
  t.liger.experts = true;
  return t;
}

}  // namespace

namespace family {
extern const Family hunyuan_v1_moe = mixture_family<read, parts>(kClasses, kBlocks, convert_mixture_targets, traits);
}  // namespace family

}  // namespace oometer
