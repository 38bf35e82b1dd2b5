#include <algorithm>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "peft/config.h"
#include "tensor/node.h"

/// transformers 5.23, models/phimoe/modeling_phimoe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"PhimoeForCausalLM",    "PhimoeModel", "PhimoeDecoderLayer",   "PhimoeAttention",
                                 "PhimoeSparseMoeBlock", "LayerNorm",   "PhimoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"phimoe", kNames.causal_lm}, {"phimoe", "PhimoeForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct PhimoeConfig : TextConfig {
  bool lm_head_bias = false;
  bool jitters_input = false;  ///< input_jitter_noise

  bool operator==(const PhimoeConfig&) const = default;
};

PhimoeConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 32064;
  d.hidden_size = 4096;
  d.intermediate_size = 6400;
  d.num_hidden_layers = 32;
  d.num_attention_heads = 32;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  PhimoeConfig c{read_text_sizes(reader, d)};
  c.sliding_window = reader.optional_integer("sliding_window").value_or(0);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_local_experts", "num_experts",
               {.num_experts = 16, .num_experts_per_tok = 2, .balances = true, .are_counted = false});
  c.experts.intermediate_size = c.intermediate_size;
  c.lm_head_bias = reader.boolean("lm_head_bias", false);
  c.jitters_input = reader.number("input_jitter_noise", 0, 0, 1) > 0;
  reader.ignore({"router_jitter_noise", "original_max_position_embeddings", "hidden_dropout"});
  // sparsemixer chooses two, whatever top_k is.
  if (c.experts.num_experts_per_tok != 2) reader.fail_found("num_experts_per_tok", "inconsistent", "expected 2");
  return c;
}

/// PhimoeRotaryEmbedding.forward: frequencies are made anew, in host memory.
PositionEmbeddings embed_positions(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  Tensor seq_len;
  {
    const Tensor last = empty(context, Op::max, {}, DType::int64);
    seq_len = add_scalar(last);
  }
  Tensor freqs;
  {
    const Tensor as_float = to(position_ids, DType::float32);
    const Tensor inv_freq = empty(context, Op::to_copy, rotary_emb.inv_freq.sizes(), DType::float32);
    freqs = empty(context, Op::mul, {position_ids.size(0), position_ids.size(1), inv_freq.size(0)}, DType::float32);
  }
  const Tensor emb = cat({freqs, freqs}, -1);
  const auto scaled = [&](Op op) {
    const Tensor values = pointwise(op, {&emb}, DType::float32);
    return mul_scalar(values);
  };
  const Tensor cos = scaled(Op::cos), sin = scaled(Op::sin);
  PositionEmbeddings positions;
  positions.cos = call.result(to(cos, dtype));
  positions.sin = call.result(to(sin, dtype));
  return positions;
}

/// PhimoeMultiplier: a backward of its own, which gives the scores a gradient and the others none.
Tensor multiplier_of(const Tensor& scores, const Tensor& multiplier, const Tensor& selected_experts,
                     const Tensor& masked_gates, const Tensor& mask_for_one) {
  const BackwardFunction backward = [](Backward& b) {
    const Tensor grad_at_output = mul(b.grad(), b.saved(0));
    const Tensor negative = mul_scalar(grad_at_output);
    b.give(0, mul(b.saved(2), negative));
  };
  Record record(Op::none, backward, {&scores, &multiplier, &masked_gates});
  Tensor result;
  {
    const NoGrad no_grad(scores.context());
    result = mul(multiplier, mask_for_one);
  }
  record.save(multiplier);
  record.save(selected_experts);
  record.save(masked_gates);
  return record.output(std::move(result));
}

/// torch.scatter(scores, -1, selected_experts, float("-inf"))
Tensor scatter_infinity(const Tensor& scores, const Tensor& selected_experts) {
  Record record(Op::copy, [](Backward& b) { b.give(0, empty_like(Op::copy, b.grad())); }, {&scores});
  record.save(selected_experts);
  return record.output(empty_like(Op::clone, scores));
}

/// A choice of sparsemixer, of which there are two: an expert of each token, and what it is multiplied by. All of these
/// are names of its frame.
struct SparseChoice {
  Tensor max_ind, factor, mask_logits_threshold, masked_gates, selected_experts, multiplier_o, max_scores, mask_for_one,
      multiplier;

  /// `its`: the scores among which it is.
  void operator()(const Tensor& scores, const Tensor& its) {
    Context& context = scores.context();
    {
      const NoGrad no_grad(context);
      TopK best = max(its);
      mask_logits_threshold = std::move(best.values);
      max_ind = std::move(best.indices);
      {
        const Tensor absolute = abs(scores);
        factor = pointwise(Op::clamp, {&absolute, &mask_logits_threshold}, scores.dtype());
      }
      Tensor below = sub(mask_logits_threshold, scores);
      below = div(below, factor);
      mask_logits_threshold = pointwise(Op::gt, {&below}, DType::boolean);
    }
    masked_gates = masked_fill(its, mask_logits_threshold);
    if (context.training) {
      Tensor gumbel;
      {
        Tensor noise = empty_like(Op::empty, masked_gates);
        noise = pointwise(Op::log, {&noise}, masked_gates.dtype());
        gumbel = sub(masked_gates, noise);
      }
      selected_experts = max(gumbel).indices;
    } else {
      selected_experts = max_ind;
    }
    masked_gates = softmax(masked_gates, context.autocast.enabled ? DType::float32 : masked_gates.dtype());
    multiplier_o = gather(masked_gates, selected_experts);
    if (!context.training) {
      multiplier = multiplier_o;
      return;
    }
    {
      TopK best = max(masked_gates);
      max_scores = std::move(best.values);
      max_ind = std::move(best.indices);
    }
    {
      const Tensor is_best = pointwise(Op::eq, {&selected_experts, &max_ind}, DType::boolean);
      Tensor chance = empty_like(Op::empty, max_scores);
      chance = pointwise(Op::gt, {&chance}, DType::boolean);
      mask_for_one = pointwise(Op::bitwise_and, {&is_best, &chance}, DType::boolean);
    }
    mask_for_one = pointwise(Op::add, {&mask_for_one}, DType::float32);
    mask_for_one = to(mask_for_one, masked_gates.dtype());
    multiplier = multiplier_of(scores, multiplier_o, selected_experts, masked_gates, mask_for_one);
  }
};

/// PhimoeTopKRouter.forward, behind its noise, with sparsemixer.
Routing sparsemixer(const Router& router, const Tensor& hidden_in) {
  ModuleCall call(hidden_in.context(), router.module);
  const Tensor hidden_states = call.argument(hidden_in);
  Routing routing;
  routing.router_logits = linear(hidden_states, router.weight, {});
  const Tensor& scores = routing.router_logits;
  SparseChoice first;
  first(scores, scores);
  const Tensor masked_scores = scatter_infinity(scores, first.selected_experts);
  // The second one has names of its own but for these, which are bound anew.
  SparseChoice second;
  second.max_ind = std::move(first.max_ind);
  second.factor = std::move(first.factor);
  second.mask_logits_threshold = std::move(first.mask_logits_threshold);
  second.max_scores = std::move(first.max_scores);
  second(scores, masked_scores);
  routing.topk_weights = cat({first.multiplier, second.multiplier}, -1);
  routing.topk_indices = cat({first.selected_experts, second.selected_experts}, -1);
  routing.router_logits = call.result(std::move(routing.router_logits));
  routing.topk_weights = call.result(std::move(routing.topk_weights));
  return routing;
}

/// `view *= noise` of a view of `base`: CopySlices becomes the base's history, and AsStridedBackward the view's.
Tensor mul_view_in_place(const Tensor& base, const Tensor& noise, const Shape& sizes) {
  Record slices(Op::mul,
                [](Backward& b) {
                  Tensor result = empty_like(Op::copy, b.grad());
                  const Tensor of_slice = empty_like(Op::clone, b.grad());
                  const Tensor of_mul = mul(of_slice, b.saved(0));
                  b.give(0, std::move(result));
                },
                {&base});
  slices.save(noise);
  if (!slices) return view(base, sizes);
  const Tensor renewed = slices.output(make_view(base, base.sizes(), base.strides()));
  Record as_strided(Op::none,
                    [](Backward& b) { b.give(0, empty(b.context, Op::zeros, b.node.sizes, b.grad().dtype())); },
                    {&renewed});
  as_strided->sizes = base.sizes();
  return as_strided.output(make_view(renewed, sizes, {sizes[1], 1}));
}

struct PhimoeSparseMoeBlock {
  PhimoeSparseMoeBlock(const Builder& at, const PhimoeConfig& c)
      : router(at.child("router", "PhimoeTopKRouter"), c, sparsemixer),
        experts(make_experts(at, "PhimoeExperts", c, {.checkpoint = kNumberedProjections})),
        jitters_input(c.jitters_input),
        module(at.module) {}

  Tensor operator()(const Tensor& argument) const {
    Context& context = argument.context();
    ModuleCall call(context, module);
    Tensor hidden_in = call.argument(argument);
    const Shape sizes = hidden_in.sizes(), tokens{sizes[0] * sizes[1], sizes[2]};
    const bool jitters = context.training && jitters_input;
    if (jitters) {
      const Tensor noise = empty_like(Op::empty, hidden_in);
      hidden_in = mul_in_place(hidden_in, noise);
    }
    Tensor hidden_states;
    if (jitters) {
      const Tensor noise = empty(context, Op::empty, tokens, hidden_in.dtype());
      hidden_states = mul_view_in_place(hidden_in, noise, tokens);
    } else {
      hidden_states = view(hidden_in, tokens);
    }
    const Routing routing = router(hidden_states);  // the logits stay in `_` until the module returns
    const Tensor final_hidden_states = experts(hidden_states, routing.topk_indices, routing.topk_weights);
    return call.result(view(final_hidden_states, sizes));
  }

  Router router;
  Experts experts;
  bool jitters_input;
  ModuleId module;
};

DecoderParts parts(const PhimoeConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& builder, std::size_t) -> std::unique_ptr<DecoderLayer> {
    auto layer = std::make_unique<TextLayer>(builder, pre_norm);
    const auto norm = [&](const char* name) {
      return Norm(builder.child(name, "LayerNorm"), torch_layer_norm, {config.hidden_size}, true);
    };
    layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), config, options);
    layer->mlp = PhimoeSparseMoeBlock(builder.child("mlp", kNames.mlp), config);
    layer->input_norm = norm("input_layernorm");
    layer->feedforward_norm = norm("post_attention_layernorm");
    return layer;
  };
  parts.rotary = embed_positions;
  parts.norm = final_norm(torch_layer_norm, true);
  parts.head_bias = config.lm_head_bias;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<PhimoeConfig>());
  t.has_no_peft_targets();
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  return t;
}

/// PhimoeTopKRouter is a Linear whose forward gives three tensors: lora.Linear fails at them.
void refuse_router(ConfigReader& reader, const FamilyConfig&, LoraConfig& lora) {
  const std::vector<std::string>& names = lora.target_modules.names;
  if (lora.target_modules.all_linear || std::find(names.begin(), names.end(), "router") != names.end())
    reader.fail_found("target_modules", "inconsistent",
                      "it reaches PhimoeTopKRouter, at which peft fails; expected names of layers (q_proj, k_proj, "
                      "v_proj, o_proj)");
}

}  // namespace

namespace family {
extern const Family phimoe = [] {
  Family its = text_family_of<PhimoeConfig, read, balanced<parts, PhimoeConfig>>(kClasses, kBlocks, traits);
  its.convert_targets = refuse_router;
  return its;
}();
}  // namespace family

}  // namespace oometer
