#include <algorithm>
#include <memory>
#include <utility>

#include "config/reader.h"
#include "models/kit/recurrent.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "models/sizes.h"
#include "ops/experts.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/doge/modeling_doge.py: Llama's layer with weighed residuals, and a mask that follows the
/// values.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"DogeForCausalLM", "DogeModel",   "DogeDecoderLayer",   "DogeAttention",
                                 "DogeMLP",         "DogeRMSNorm", "DogeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"doge", kNames.causal_lm}, {"doge", "DogeForSequenceClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct DogeConfig : TextConfig {
  std::int64_t keep_window_size = 2048;  ///< tokens: of more that many are seen

  bool operator==(const DogeConfig&) const = default;
};

DogeConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 32'768;
  d.hidden_size = 1024;
  d.intermediate_size = 2048;
  d.num_hidden_layers = 32;
  d.num_attention_heads = 8;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 2048;
  DogeConfig c{read_text_sizes(reader, d)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  check_llama_heads(reader, c);
  c.layer_dropout = reader.number("hidden_dropout", 0, 0, 1);
  c.keep_window_size = reader.integer("keep_window_size", 2048);
  c.sliding_window = reader.optional_integer("sliding_window").value_or(0);
  reader.refuse("is_moe", "experts of this class are not supported yet: set it to false");
  reader.refuse("output_router_logits", "routers' logits among the outputs are not supported yet: set it to false");
  reader.ignore({"num_experts", "num_experts_per_tok", "norm_topk_prob", "router_aux_loss_coef"});
  return c;
}

struct DogeAttention {
  DogeAttention(const Builder& builder, const DogeConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim),
        keep_window_size(c.keep_window_size),
        call(attention_call(c, options)),
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
      return Linear(builder.child(name, "Linear"), in, out, c.qkv_bias);
    };
    q_proj = linear("q_proj", c.hidden_size, width);
    k_proj = linear("k_proj", c.hidden_size, kv_width);
    v_proj = linear("v_proj", c.hidden_size, kv_width);
    a = builder.parameter("A", {c.num_key_value_heads});
    dt_proj = linear("dt_proj", kv_width, c.num_key_value_heads);
    o_proj = linear("o_proj", width, c.hidden_size);
    q_norm = Norm(builder.child("q_norm", kNames.rms_norm), rms_norm, {head_dim});
    k_norm = Norm(builder.child("k_norm", kNames.rms_norm), rms_norm, {head_dim});
  }

  AttentionOutputs operator()(const Tensor& argument, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    Context& context = argument.context();
    ModuleCall self(context, module);
    const Tensor hidden_states = self.argument(argument);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    const auto viewed = [&](const Tensor& x) { return view(x, {batch, length, x.size(2) / head_dim, head_dim}); };
    AttentionInputs states;
    states.query = transpose(q_norm(viewed(q_proj(hidden_states))), 1, 2);
    states.key = transpose(k_norm(viewed(k_proj(hidden_states))), 1, 2);
    states.value = heads_of(v_proj(hidden_states), head_dim);
    std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    const std::int64_t kv_heads = states.value.size(1), heads = states.query.size(1);
    Tensor dt_states = dt_proj(reshape(transpose(states.value, 1, 2), {batch, length, kv_heads * head_dim}));
    {
      Tensor rate;
      {
        const Tensor given = autocast_float32(dt_states);
        rate = activation_of_input(Op::softplus, Op::softplus_backward, given, false);
      }
      rate = mul(a, rate);
      rate = exp(rate);
      dt_states = transpose(rate, 1, 2);
    }
    Tensor attn_mask = prepare_dynamic_mask(hidden_states, dt_states, attention_mask);
    attn_mask = repeat_kv(attn_mask, heads);
    AttentionOutputs attention = attention_forward(call, states.query, states.key, states.value, attn_mask,
                                                   {positions.position_ids, positions.rows, positions.cu_seq_lens});
    attention.output = reshape(attention.output, {batch, length, heads * head_dim});
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  /// `dt_states`: [b, kv_heads, s].
  Tensor prepare_dynamic_mask(const Tensor& hidden_states, const Tensor& dt_states, const Tensor& given_mask) const {
    Context& context = hidden_states.context();
    const std::int64_t length = hidden_states.size(1);
    const DType dtype = hidden_states.dtype();
    Tensor attn_mask = expand(unsqueeze(dt_states, 2), {dt_states.size(0), dt_states.size(1), length, length});
    Tensor attention_mask = given_mask;
    if (attention_mask.dtype() == DType::boolean) {
      const Tensor zero = empty(context, Op::fill, {}, dtype), lowest = empty(context, Op::fill, {}, dtype);
      attention_mask = pointwise(Op::where, {&given_mask, &zero, &lowest}, dtype);
    }
    {
      const Tensor hidden = pointwise(Op::ne, {&attention_mask}, DType::boolean);
      attn_mask = masked_fill(attn_mask, hidden);
    }
    if (length <= keep_window_size) return attn_mask;
    Tensor active_mask = empty_like(Op::zeros_like, attn_mask, dtype);
    const Tensor topk_indices = topk(attn_mask, keep_window_size).indices;
    active_mask = empty_like(Op::clone, active_mask);  // scatter: a copy
    {
      const Tensor inactive = pointwise(Op::eq, {&active_mask}, DType::boolean);
      attn_mask = masked_fill(attn_mask, inactive);
    }
    return attn_mask;
  }

  std::int64_t head_dim, keep_window_size;
  AttentionCall call;
  Linear q_proj, k_proj, v_proj, dt_proj, o_proj;
  Tensor a;
  Norm q_norm, k_norm;
  ModuleId module;
};

class DogeDecoderLayer : public DecoderLayer {
 public:
  DogeDecoderLayer(const Builder& builder, const DogeConfig& c, const ModelOptions& options)
      : input_layernorm_(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size}),
        self_attn_(builder.child("self_attn", kNames.attention), c, options),
        input_residual_(builder.parameter("input_residual", {c.hidden_size})),
        post_attention_layernorm_(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm,
                                  {c.hidden_size}),
        mlp_(builder.child("mlp", kNames.mlp), c),
        post_attention_residual_(builder.parameter("post_attention_residual", {c.hidden_size})),
        hidden_dropout_(c.layer_dropout),
        module_(builder.module) {}

  Tensor operator()(const Tensor& hidden_in, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override {
    const ModuleScope scope(hidden_in.context(), module_);
    const auto add_to = [](const Tensor& weight, const Tensor& residual, const Tensor& x) {
      const Tensor weighed = mul(weight, residual);
      return add(weighed, x);
    };
    Tensor hidden_states = input_layernorm_(hidden_in);
    AttentionOutputs attention = self_attn_(hidden_states, positions, attention_mask);  // its weights keep their name
    hidden_states = std::move(attention.output);
    hidden_states = dropout(hidden_states, hidden_dropout_);
    hidden_states = add_to(input_residual_, hidden_in, hidden_states);
    const Tensor residual = hidden_states;
    hidden_states = post_attention_layernorm_(hidden_states);
    hidden_states = mlp_(hidden_states);
    hidden_states = dropout(hidden_states, hidden_dropout_);
    return add_to(post_attention_residual_, residual, hidden_states);
  }

 private:
  Norm input_layernorm_;
  DogeAttention self_attn_;
  Tensor input_residual_;
  Norm post_attention_layernorm_;
  LlamaMLP mlp_;
  Tensor post_attention_residual_;
  double hidden_dropout_;
  ModuleId module_;
};

DecoderParts parts(const DogeConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t) {
    return std::make_unique<DogeDecoderLayer>(layer, config, options);
  };
  parts.always_masks = true;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<DogeConfig>());
  t.has_no_peft_targets();
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  for (const Feature feature : {Feature::inference, Feature::packing})
    t.refuse(feature, "not-modelled", "this is not supported yet with " + t.class_name);
  for (const Feature feature : {Feature::flash_attention, Feature::flash_attention_2})
    t.refuse(feature, "inconsistent", "Doge's attention has a mask of numbers: expected sdpa or eager");
  return t;
}

}  // namespace

namespace family {
extern const Family doge = text_family_of<DogeConfig, read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
