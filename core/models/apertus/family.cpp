#include "config/reader.h"
#include "models/kit/text_family.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "ops/xielu.h"

/// transformers 5.23, models/apertus/modeling_apertus.py, without the package xielu, whose kernel would take the place
/// of the activation's operators.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"ApertusForCausalLM", "ApertusModel",   "ApertusDecoderLayer",   "ApertusAttention",
                                 "ApertusMLP",         "ApertusRMSNorm", "ApertusRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"apertus", kNames.causal_lm}, {"apertus", "ApertusForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig c;
  c.names = &kNames;
  c.vocab_size = reader.integer("vocab_size", 131072);
  c.hidden_size = reader.integer("hidden_size", 4096);
  c.intermediate_size = reader.integer("intermediate_size", 14336);
  c.num_hidden_layers = reader.integer("num_hidden_layers", 32, layer_count);
  c.num_attention_heads = reader.integer("num_attention_heads", 32);
  c.num_key_value_heads = reader.optional_integer("num_key_value_heads").value_or(c.num_attention_heads);
  c.head_dim = reader.optional_integer("head_dim").value_or(c.hidden_size / c.num_attention_heads);
  c.max_position_embeddings = reader.integer("max_position_embeddings", 65536);
  c.attention_dropout = reader.number("attention_dropout", 0, 0, 1);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  c.has_pad_token = !reader.is_null("pad_token_id");
  reader.ignore({"pad_token_id", "mlp_bias", "post_norm", "qk_norm"});
  if (reader.text("hidden_act", "xielu") != "xielu")
    reader.fail_found("hidden_act", "not-modelled", "expected xielu: others are not supported yet");
  check_llama_heads(reader, c);
  return c;
}

/// XIELUActivation (activations.py).
struct XIELUActivation {
  explicit XIELUActivation(const Builder& builder) : module(builder.module) {
    // ACT2FN["xielu"] makes one in bfloat16, which stays until that of the config's type takes its place.
    Builder first = builder;
    first.dtype = DType::bfloat16;
    Tensor of_act2fn[] = {initial(first), initial(first), constant(first), constant(first)};
    const auto parameter = [&](const char* name) {
      const Tensor exponential = raised(builder);
      return builder.parameter(name, {1});
    };
    alpha_p = parameter("alpha_p");
    alpha_n = parameter("alpha_n");
    beta = builder.buffer({}, builder.dtype);
    eps = builder.buffer({}, builder.dtype);
    for (Tensor& tensor : of_act2fn) tensor.reset();
  }

  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), module);
    const Tensor x = call.argument(argument);
    const Tensor positive = softplus(alpha_p);
    Tensor negative = softplus(alpha_n);
    negative = add(beta, negative);
    const Tensor condition = pointwise(Op::gt, {&x}, DType::boolean);
    Tensor above = mul(positive, x);
    above = mul(above, x);
    {
      const Tensor straight = mul(beta, x);
      above = add(above, straight);
    }
    Tensor below = maximum(Op::minimum, x, eps);
    below = expm1(below);
    below = sub(below, x);
    below = mul(below, negative);
    {
      const Tensor straight = mul(beta, x);
      below = add(below, straight);
    }
    return call.result(where(condition, above, below));
  }

  Tensor alpha_p, alpha_n, beta, eps;
  ModuleId module;

 private:
  static Tensor constant(const Builder& builder) { return empty(*builder.context, Op::empty, {}, builder.dtype); }
  /// torch.expm1(torch.tensor(alpha)), of which a parameter is the logarithm.
  static Tensor raised(const Builder& builder) {
    const Tensor value = constant(builder);
    return pointwise(Op::expm1, {&value}, builder.dtype);
  }
  static Tensor initial(const Builder& builder) {
    const Tensor exponential = raised(builder);
    return pointwise(Op::log, {&exponential}, builder.dtype);
  }
};

struct ApertusMLP {
  ApertusMLP(const Builder& builder, const TextConfig& c)
      : up_proj(builder.child("up_proj", "Linear"), c.hidden_size, c.intermediate_size, false),
        down_proj(builder.child("down_proj", "Linear"), c.intermediate_size, c.hidden_size, false),
        act_fn(builder.child("act_fn", "XIELUActivation")),
        module(builder.module) {}

  Tensor operator()(const Tensor& x) const {
    ModuleCall call(x.context(), module);
    Tensor hidden_states = up_proj(call.argument(x));
    hidden_states = act_fn(hidden_states);
    return call.result(down_proj(hidden_states));
  }

  Linear up_proj, down_proj;
  XIELUActivation act_fn;
  ModuleId module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  AttentionParts its;
  its.norms_at = HeadNorms::transposed;
  its.norm = rms_norm;
  its.norm_type = kNames.rms_norm;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = ApertusMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("attention_layernorm");
  layer->feedforward_norm = norm("feedforward_layernorm");
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family apertus =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
