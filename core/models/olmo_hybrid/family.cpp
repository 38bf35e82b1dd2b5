#include <algorithm>
#include <string>
#include <utility>

#include "config/reader.h"
#include "models/kit/gated_delta_net.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/olmo_hybrid/modeling_olmo_hybrid.py: OLMo 3's attention in every fourth layer, behind
/// which norms stand; linear attention by the gated delta rule in the others, in front of which they stand.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"OlmoHybridForCausalLM",    "OlmoHybridModel", "OlmoHybridLinearAttentionDecoderLayer",
                                 "OlmoHybridAttention",      "OlmoHybridMLP",   "OlmoHybridRMSNorm",
                                 "OlmoHybridRotaryEmbedding"};
constexpr const char* kAttentionLayer = "OlmoHybridAttentionDecoderLayer";
constexpr ModelClass kClasses[] = {{"olmo_hybrid", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kAttentionLayer, kNames.decoder_layer};

struct OlmoHybridConfig : TextConfig {
  bool allow_neg_eigval = true;  ///< linear_allow_neg_eigval
  bool operator==(const OlmoHybridConfig&) const = default;
};

OlmoHybridConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 100'352;
  d.hidden_size = 3840;
  d.num_attention_heads = 30;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 65'536;
  d.has_pad_token = true;
  OlmoHybridConfig c{read_text_sizes(reader, d)};
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  MixerConfig& m = c.mixer;
  m.kernels = Kernels::linear_attention | Kernels::causal_conv1d;
  const auto size = [&](const char* key, std::int64_t usual) { return reader.optional_integer(key).value_or(usual); };
  m.conv_kernel = reader.integer("linear_conv_kernel_dim", 4);
  m.num_key_heads = size("linear_num_key_heads", c.num_attention_heads);
  m.num_value_heads = size("linear_num_value_heads", c.num_attention_heads);
  m.key_head_dim = size("linear_key_head_dim", 3 * c.hidden_size / (4 * m.num_key_heads));
  m.value_head_dim = size("linear_value_head_dim", 2 * m.key_head_dim);
  if (m.num_value_heads % m.num_key_heads != 0)
    reader.fail("linear_num_value_heads", "inconsistent",
                "found " + std::to_string(m.num_value_heads) + "; expected a multiple of linear_num_key_heads (" +
                    std::to_string(m.num_key_heads) + ")");
  read_mixer_layers(reader, c, "linear_attention", 4);
  const auto mixers = std::count(m.layers.begin(), m.layers.end(), true);
  if (mixers == c.num_hidden_layers && reader.texts("layer_types").empty() && !m.layers.empty())
    m.layers.back() = false;  // one has attention at least
  else if (mixers == 0 || mixers == c.num_hidden_layers)
    reader.fail("layer_types", "inconsistent", "expected layers of both types");
  // OlmoHybridModel.__init__: nothing rotates where there is no angle, which is written out; else there is a usual one.
  ConfigReader rope = reader.object("rope_parameters");
  if (rope.is_null("rope_theta") || (!reader.has("rope_parameters") && reader.is_null("rope_theta"))) c.rotary_dim = -1;
  c.allow_neg_eigval = reader.boolean("linear_allow_neg_eigval", true);
  reader.ignore({"linear_a_log_min", "linear_a_log_max", "linear_dt_min", "linear_dt_max", "linear_dt_init_floor",
                 "linear_use_gate"});
  return c;
}

/// OlmoHybridGatedDeltaNet.
class DeltaNet {
 public:
  DeltaNet(const Builder& builder, const OlmoHybridConfig& c)
      : sizes_(c.mixer),
        activation_(c.hidden_act),
        allow_neg_eigval_(c.allow_neg_eigval),
        layer_idx_(layer_index(builder)),
        module_(builder.module) {
    const std::int64_t hidden = c.hidden_size, heads = sizes_.num_value_heads, keys = sizes_.key_size(),
                       values = sizes_.value_size();
    const auto linear = [&](const char* name, std::int64_t in, std::int64_t out) {
      return Linear(builder.child(name, "Linear"), in, out, false);
    };
    q_proj_ = linear("q_proj", hidden, keys);
    k_proj_ = linear("k_proj", hidden, keys);
    v_proj_ = linear("v_proj", hidden, values);
    a_proj_ = linear("a_proj", hidden, heads);
    b_proj_ = linear("b_proj", hidden, heads);
    g_proj_ = linear("g_proj", hidden, values);
    o_proj_ = linear("o_proj", values, hidden);
    conv1d_ = CausalConv(builder.child("conv1d", "Conv1d"), 2 * keys + values, sizes_.conv_kernel, false);
    Builder in_float32 = builder;
    in_float32.dtype = DType::float32;
    Context& context = *builder.context;
    const auto random = [&](Op op, DType dtype) { return empty(context, op, {heads}, dtype); };
    const Tensor a = random(Op::randn, DType::float32);  // a name of __init__, as is dt
    a_log_ = in_float32.parameter("A_log", {heads});
    Tensor dt;
    {
      Tensor x = random(Op::randn, builder.dtype);
      for (const Op op : {Op::mul, Op::add, Op::exp}) x = random(op, builder.dtype);
      dt = x;
    }
    dt = random(Op::clamp, builder.dtype);
    {
      Tensor x = random(Op::neg, builder.dtype);
      for (const Op op : {Op::expm1, Op::neg, Op::log}) x = random(op, builder.dtype);
      dt_bias_ = builder.parameter("dt_bias", {heads});
    }
    o_norm_ = Norm(builder.child("o_norm", "OlmoHybridRMSNormGated"), nullptr, {sizes_.value_head_dim});
  }

  AttentionOutputs operator()(const Tensor& given, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall call(given.context(), module_);
    const Tensor hidden_states = apply_mask_to_padding_states(call.keyword(given), attention_mask);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1), keys = sizes_.key_size(),
                       values = sizes_.value_size();
    Tensor mixed_qkv;
    {
      const Tensor q = q_proj_(hidden_states), k = k_proj_(hidden_states), v = v_proj_(hidden_states);
      mixed_qkv = transpose(cat({q, k, v}, -1), 1, 2);
    }
    mixed_qkv = conv1d_(std::move(mixed_qkv), activation_, layer_idx_);
    mixed_qkv = slice(mixed_qkv, 2, 0, length);
    Tensor q, k, v;
    {
      const TensorList parts = split(transpose(mixed_qkv, 1, 2), {keys, keys, values}, -1);
      q = parts[0];
      k = parts[1];
      v = parts[2];
    }
    for (Tensor* x : {&q, &k}) *x = view(*x, {batch, length, sizes_.num_key_heads, sizes_.key_head_dim});
    v = view(v, {batch, length, sizes_.num_value_heads, sizes_.value_head_dim});
    Tensor beta;
    {
      const Tensor projected = b_proj_(hidden_states);
      beta = sigmoid(projected);
    }
    if (allow_neg_eigval_) beta = mul_scalar(beta);
    Tensor g;
    {
      Tensor rate = to(a_log_, DType::float32);
      rate = exp(rate);
      rate = neg(rate);
      Tensor step = to(a_proj_(hidden_states), DType::float32);
      step = add(step, dt_bias_);
      step = activation_of_input(Op::softplus, Op::softplus_backward, step, false);
      g = mul(rate, step);
    }
    Tensor output = chunk_gated_delta_rule({q, k, v, g, beta}, false, documents_of(positions)).core_attn_out;
    Tensor gate = g_proj_(hidden_states);
    const std::int64_t rows = batch * length * sizes_.num_value_heads;
    output = reshape(output, {rows, sizes_.value_head_dim});
    gate = reshape(gate, {rows, sizes_.value_head_dim});
    output = rms_norm_gated(o_norm_, output, gate);
    output = reshape(output, {batch, length, values});
    output = o_proj_(output);
    return {call.result(output), {}};
  }

 private:
  MixerConfig sizes_;
  Linear q_proj_, k_proj_, v_proj_, a_proj_, b_proj_, g_proj_, o_proj_;
  CausalConv conv1d_;
  Tensor a_log_, dt_bias_;
  Norm o_norm_;
  Activation activation_;
  bool allow_neg_eigval_;
  std::size_t layer_idx_;
  ModuleId module_;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const OlmoHybridConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm_float32, {c.hidden_size});
  };
  if (c.mixer.is_in(index)) {
    auto layer = std::make_unique<TextLayer>(builder, pre_norm);
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
    layer->input_norm = norm("input_layernorm");
    layer->feedforward_norm = norm("post_attention_layernorm");
    layer->self_attn = DeltaNet(builder.child("linear_attn", "OlmoHybridGatedDeltaNet"), c);
    return layer;
  }
  builder.context->log.modules[builder.module].type = kAttentionLayer;
  auto layer = std::make_unique<TextLayer>(builder, post_norm);
  AttentionParts its;
  its.norms_at = HeadNorms::whole;
  its.norm = rms_norm_float32;
  its.norm_type = kNames.rms_norm;
  its.rotate = c.rotary_dim < 0 ? nullptr : rotate_float32;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->attention_norm = norm("post_attention_layernorm");
  layer->output_norm = norm("post_feedforward_layernorm");
  return layer;
}

DecoderParts parts(const OlmoHybridConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) {
    return make_layer(layer, config, options, index);
  };
  parts.rotary = embed_positions_float32;
  parts.norm = final_norm(rms_norm_float32);
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  const auto& c = config.as<OlmoHybridConfig>();
  ModelTraits t = recurrent_traits(c);
  t.generates = false;
  t.refuse(Feature::inference, "not-modelled", "inference is not supported yet with " + t.class_name);
  t.refuse(Feature::flash_attention_2, "not-modelled", "this is not supported yet with " + t.class_name);
  // Layers of linear attention do not hold cos and sin, which Decoder has all layers hold.
  if (c.rotary_dim >= 0)
    t.refuse(Feature::checkpointing, "not-modelled",
             "this is not supported yet with an " + t.class_name +
                 " that rotates; expected \"rope_parameters\": {\"rope_theta\": null}, as the published model has");
  t.allow({Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family olmo_hybrid = text_family_of<OlmoHybridConfig, read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
