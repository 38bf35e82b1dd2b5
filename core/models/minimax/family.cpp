#include <algorithm>
#include <iterator>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/causal_conv.h"
#include "models/kit/mixture.h"
#include "models/kit/recurrent.h"
#include "nn/activation.h"
#include "nn/kv_cache.h"
#include "nn/quantizer.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/minimax/modeling_minimax.py: lightning attention in every second layer, Mixtral's
/// attention in the others, and its experts; residuals begin behind the norms.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"MiniMaxForCausalLM",    "MiniMaxModel",   "MiniMaxDecoderLayer",   "MiniMaxAttention",
                                 "MiniMaxSparseMoeBlock", "MiniMaxRMSNorm", "MiniMaxRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"minimax", kNames.causal_lm},
                                   {"minimax", "MiniMaxForSequenceClassification"},
                                   {"minimax", "MiniMaxForTokenClassification"},
                                   {"minimax", "MiniMaxForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.intermediate_size = 14336;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 131'072;
  TextConfig c = read_text_sizes(reader, d);
  c.sliding_window = reader.optional_integer("sliding_window").value_or(0);
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_local_experts", "num_experts",
               {.num_experts = 8, .num_experts_per_tok = 2, .balances = true});
  c.experts.intermediate_size = c.intermediate_size;
  if (reader.number("router_jitter_noise", 0, 0, 1) != 0)
    reader.fail_found("router_jitter_noise", "not-modelled", "noise on what the router gets is not supported yet");
  MixerConfig& m = c.mixer;
  m.chunk_size = reader.integer("block_size", 256);
  m.num_key_heads = m.num_value_heads = c.num_attention_heads;
  m.key_head_dim = m.value_head_dim = c.head_dim;
  read_mixer_layers(reader, c, "linear_attention", 2);
  if (reader.texts("layer_types").empty()) m.layers.flip();  // the first layer has attention
  reader.ignore({"full_attn_alpha_factor", "full_attn_beta_factor", "linear_attn_alpha_factor",
                 "linear_attn_beta_factor", "mlp_alpha_factor", "mlp_beta_factor"});
  return c;
}

/// The modules of MiniMaxLightningAttention, the norm first.
constexpr const char* kLightningModules[] = {"norm", "qkv_proj", "out_proj", "output_gate"};
Builder lightning_module(const Builder& self_attn, std::size_t i) {
  return self_attn.child(kLightningModules[i], i == 0 ? kNames.rms_norm : "Linear");
}

/// MiniMaxLightningAttention.
struct LightningAttention {
  /// `placed`: where its modules stand, if that is settled before they are made.
  LightningAttention(const Builder& at, const std::vector<Builder>& placed, const TextConfig& c, std::size_t layer)
      : layer_idx(layer),
        heads(c.num_attention_heads),
        head_dim(c.head_dim),
        block_size(c.mixer.chunk_size),
        act_fn(c.hidden_act),
        norm(placed.empty() ? lightning_module(at, 0) : placed[0], rms_norm, {heads * head_dim}),
        qkv_proj(placed.empty() ? lightning_module(at, 1) : placed[1], c.hidden_size, 3 * heads * head_dim, false),
        out_proj(placed.empty() ? lightning_module(at, 2) : placed[2], heads * head_dim, c.hidden_size, false),
        output_gate(placed.empty() ? lightning_module(at, 3) : placed[3], c.hidden_size, heads * head_dim, false),
        module(at.module) {
    make_decays(at);
  }

  AttentionOutputs operator()(const Tensor& given, const Tensor& attention_mask) const {
    Context& context = given.context();
    ModuleCall call(context, module);
    const Tensor hidden_states = call.keyword(given);
    const std::int64_t batch = hidden_states.size(0), length = hidden_states.size(1);
    Tensor qkv_states = qkv_proj(hidden_states);
    qkv_states = activate(act_fn, qkv_states);
    qkv_states = apply_mask_to_padding_states(qkv_states, attention_mask);
    qkv_states = reshape(qkv_states, {batch, length, heads, 3 * head_dim});
    TensorList qkv = split(qkv_states, {head_dim, head_dim, head_dim}, 3);
    for (std::size_t i = 0; i < 3; ++i) qkv[i] = transpose(qkv[i], 1, 2);
    // MiniMaxCache.linear_cache
    Tensor* const cached =
        context.past_key_values ? &context.past_key_values->linear_states(layer_idx).recurrent : nullptr;
    const bool decodes = cached && *cached;
    Tensor attn_weights_inter =
        decodes ? *cached : empty(context, Op::zeros, {batch, heads, head_dim, head_dim}, qkv[2].dtype());
    TensorList outputs;
    Tensor block_decay, attn_weights_intra, attn_output_intra, attn_output_inter, current_attn_output,
        next_attn_weights_inter, ratio;
    if (decodes) {
      const Tensor rate = neg(slope_rate);
      ratio = exp(rate);
    }
    for (std::int64_t i = 0; decodes && i < length; ++i) {
      const auto current = [&](const Tensor& x) { return slice(x, 2, i, 1); };
      next_attn_weights_inter = matmul(transpose(current(qkv[1]), -1, -2), current(qkv[2]));
      {
        const Tensor decayed = mul(ratio, attn_weights_inter);
        attn_weights_inter = add(decayed, next_attn_weights_inter);
      }
      current_attn_output = matmul(current(qkv[0]), attn_weights_inter);
      outputs.push_back(current_attn_output);
    }
    for (std::int64_t start = 0; !decodes && start < length; start += block_size) {
      const std::int64_t size = std::min(block_size, length - start);
      const auto current = [&](const Tensor& x) { return size == length ? x : slice(x, 2, start, size); };
      const Tensor q = current(qkv[0]), k = current(qkv[1]), v = current(qkv[2]);
      const Tensor q_decay = slice(query_decay, 1, 0, size), k_decay = slice(key_decay, 1, block_size - size, size),
                   diagonal = slice(slice(diagonal_decay, 2, 0, size), 3, 0, size);
      {
        Tensor rate = neg(slope_rate);
        rate = mul_scalar(rate);
        block_decay = exp(rate);
      }
      attn_weights_intra = matmul(q, transpose(k, -1, -2));
      {
        const Tensor decayed = mul(attn_weights_intra, diagonal);
        attn_output_intra = matmul(decayed, v);
      }
      {
        const Tensor decayed = mul(q, q_decay);
        attn_output_inter = matmul(decayed, attn_weights_inter);
      }
      current_attn_output = add(attn_output_inter, attn_output_intra);
      outputs.push_back(current_attn_output);
      {
        const Tensor decayed = mul(k, k_decay);
        next_attn_weights_inter = matmul(transpose(decayed, -1, -2), v);
      }
      {
        const Tensor decayed = mul(attn_weights_inter, block_decay);
        attn_weights_inter = add(decayed, next_attn_weights_inter);
      }
    }
    Tensor attn_output = cat(std::vector<Tensor>(outputs.begin(), outputs.end()), -2);
    outputs = {};
    attn_output = reshape(transpose(attn_output, 1, 2), {batch, length, heads * head_dim});
    attn_output = norm(attn_output);
    {
      Tensor gate = output_gate(hidden_states);
      gate = sigmoid(gate);
      attn_output = mul(gate, attn_output);
    }
    attn_output = out_proj(attn_output);
    if (cached) *cached = attn_weights_inter;
    return {call.result(attn_output), call.result(attn_weights_inter)};
  }

 private:
  /// get_slope_rate and decay_factors.
  void make_decays(const Builder& builder) {
    Context& context = *builder.context;
    const ModuleScope scope(context, module);
    const DType dtype = builder.dtype;
    const auto made = [&](Op op, const Shape& sizes, DType type) { return empty(context, op, sizes, type); };
    {
      Tensor exponent = made(Op::arange, {heads}, DType::int64);
      exponent = made(Op::add, {heads}, DType::int64);
      Tensor rate;
      {
        const Tensor power = made(Op::pow, {heads}, dtype);
        const Tensor base = made(Op::fill, {}, DType::float64);
        rate = power;
      }
      slope_rate = builder.buffer({heads, 1, 1}, dtype);
    }
    Tensor range = made(Op::arange, {block_size}, DType::int64);
    range = made(Op::add, {block_size}, DType::int64);
    const Shape column{heads, block_size, 1}, square{1, heads, block_size, block_size};
    {
      Tensor exponent;
      {
        const Tensor negative = made(Op::neg, {heads, 1, 1}, dtype);
        exponent = made(Op::mul, column, dtype);
      }
      query_decay = builder.buffer(column, dtype);
    }
    {
      Tensor exponent;
      {
        const Tensor negative = made(Op::neg, {heads, 1, 1}, dtype),
                     rest = made(Op::sub, {block_size, 1}, DType::int64);
        exponent = made(Op::mul, column, dtype);
      }
      key_decay = builder.buffer(column, dtype);
    }
    Tensor diagonal = made(Op::sub, {block_size, block_size}, DType::int64);
    diagonal = made(Op::mul, square, dtype);
    {
      Tensor chosen;
      {
        const Tensor is_past = made(Op::ge, square, DType::boolean), negative = made(Op::neg, square, dtype);
        const Tensor other = made(Op::fill, {}, dtype);
        chosen = made(Op::where, square, dtype);
      }
      diagonal = chosen;
    }
    diagonal_decay = builder.buffer(square, dtype);
  }

  std::size_t layer_idx;
  std::int64_t heads, head_dim, block_size;
  Activation act_fn;
  Norm norm;
  Linear qkv_proj, out_proj, output_gate;
  Tensor slope_rate, query_decay, key_decay, diagonal_decay;
  ModuleId module;
};

/// MiniMaxDecoderLayer.forward.
Tensor norm_before_residual(const TextLayer& layer, const Tensor& hidden_in, const PositionEmbeddings& positions,
                            const Tensor& attention_mask) {
  const auto weighted = [](const Tensor& residual, const Tensor& hidden) {
    const Tensor kept = mul_scalar(residual), added = mul_scalar(hidden);
    return add(kept, added);
  };
  Tensor hidden_states = layer.input_norm(hidden_in);
  Tensor residual = hidden_states;
  AttentionOutputs attention = layer.self_attn(hidden_states, positions, attention_mask);
  hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  hidden_states = weighted(residual, hidden_states);
  hidden_states = layer.feedforward_norm(hidden_states);
  residual = hidden_states;
  hidden_states = layer.mlp(hidden_states);
  return weighted(residual, hidden_states);
}

/// MiniMaxDecoderLayer.__init__: MixtralDecoderLayer's, whose attention goes once the layer has made its own.
std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  Context& context = *builder.context;
  auto layer = std::make_unique<TextLayer>(builder, norm_before_residual);
  TensorList replaced;
  std::vector<Builder> placed;
  const std::size_t first = builder.parameters->size();
  const bool is_linear = c.mixer.is_in(index);
  const Builder attention_at = builder.child("self_attn", is_linear ? "MiniMaxLightningAttention" : kNames.attention);
  if (is_linear) {
    // An adapter's modules come right behind their layer's.
    for (std::size_t i = 0; i < std::size(kLightningModules) && !builder.wrapping; ++i)
      placed.push_back(lightning_module(attention_at, i));
    const std::int64_t width = c.num_attention_heads * c.head_dim, kv_width = c.num_key_value_heads * c.head_dim;
    for (const std::int64_t rows : {width, kv_width, kv_width})
      replaced.push_back(empty(context, Op::empty, {rows, c.hidden_size}, builder.dtype));
    replaced.push_back(empty(context, Op::empty, {c.hidden_size, width}, builder.dtype));
  } else {
    layer->self_attn = TextAttention(attention_at, c, options, {});
  }
  const std::size_t last = builder.parameters->size();
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  const Builder at = builder.child("mlp", kNames.mlp);
  if (at.quantizer) at.quantizer->renames(at.module, "block_sparse_moe");
  SparseMoeBlock block(at);
  block.gate = Router(at.child("gate", "MiniMaxTopKRouter"), c, best_in_float32);
  block.experts = make_experts(at, "MiniMaxExperts", c, {.checkpoint = kNumberedProjections});
  layer->mlp = std::move(block);
  if (is_linear) {
    // The cache's first layer, by whose keys a mask is as long as it is, stays empty then.
    const bool masks_one_key = index == 0 && options.attention == AttentionKind::eager;
    layer->self_attn = [masks_one_key, its = LightningAttention(attention_at, placed, c, index)](
                           const Tensor& x, const PositionEmbeddings&, const Tensor& mask) {
      if (masks_one_key && x.context().past_key_values)
        x.context().refusal = Error{"not-modelled", "/training/attention",
                                    "found eager, in which generation is not supported yet where the first layer's "
                                    "attention is linear: expected sdpa"};
      return its(x, mask);
    };
    return layer;
  }
  if (builder.quantizer) return layer;          // its weights come later
  for (std::size_t i = first; i < last; ++i) {  // the same attention again
    const Tensor& weight = (*builder.parameters)[i].tensor;
    replaced.push_back(alias(weight, weight.sizes(), weight.strides()));
    replace_data(weight, empty(context, Op::parameter, weight.sizes(), weight.dtype(), Role::parameter));
  }
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = recurrent_traits(config.as<TextConfig>());
  allow_compared(t, {Feature::quantization, Feature::fsdp});
  return t;
}

}  // namespace

namespace family {
extern const Family minimax = mixture_family<read, parts>(kClasses, kBlocks, convert_mixtral_targets, traits);
}  // namespace family

}  // namespace oometer
