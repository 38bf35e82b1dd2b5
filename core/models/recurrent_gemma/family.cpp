#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "config/reader.h"
#include "models/kit/causal_conv.h"
#include "models/kit/recurrent.h"
#include "models/llama/llama.h"
#include "nn/activation.h"
#include "ops/masks.h"
#include "ops/ops.h"
#include "ops/vision.h"
#include "ops/xielu.h"
#include "tensor/node.h"

/// transformers 5.23, models/recurrent_gemma/modeling_recurrent_gemma.py: RG-LRU in two layers of three, attention
/// through a window in the others.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"RecurrentGemmaForCausalLM",    "RecurrentGemmaModel", "RecurrentGemmaDecoderLayer",
                                 "RecurrentGemmaAttention",      "RecurrentGemmaMlp",   "RecurrentGemmaRMSNorm",
                                 "RecurrentGemmaRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"recurrent_gemma", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

struct RecurrentGemmaConfig : TextConfig {
  std::int64_t lru_width = 0, conv1d_width = 4;
  std::int64_t turned = 0;  ///< elements of a head
  std::vector<bool> recurrent{};

  bool operator==(const RecurrentGemmaConfig&) const = default;
};

RecurrentGemmaConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 256'000;
  d.hidden_size = 2560;
  d.intermediate_size = 7680;
  d.num_hidden_layers = 26;
  d.num_attention_heads = 10;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 8192;
  d.tie_word_embeddings = d.has_pad_token = true;
  RecurrentGemmaConfig c{read_text_sizes(reader, d)};
  share_hidden_size(reader, c);
  check_llama_heads(reader, c);
  c.hidden_act = reader.activation("hidden_activation", Activation::gelu_tanh);
  c.intermediate_size /= 2;
  c.mlp_bias = c.output_bias = true;
  c.qkv_bias = reader.boolean("attention_bias", false);
  read_partial_rotary(reader, c, 0.5);
  c.turned = c.rotary_dim;
  c.rotary_dim = -1;  // the decoder has none: each attention has its own
  c.sliding_window = reader.integer("attention_window_size", reader.integer("sliding_window", 2048));
  c.lru_width = reader.optional_integer("lru_width").value_or(c.hidden_size);
  if (c.lru_width % c.num_attention_heads != 0)
    reader.fail_found("lru_width", "inconsistent",
                      "expected a multiple of num_attention_heads (" + std::to_string(c.num_attention_heads) + ")");
  c.conv1d_width = reader.integer("conv1d_width", 4);
  std::vector<std::string> types = reader.texts("block_types");
  if (types.empty()) types = {"recurrent", "recurrent", "attention"};
  for (std::size_t i = 0; i < static_cast<std::size_t>(c.num_hidden_layers); ++i)
    c.recurrent.push_back(types[i % types.size()] == "recurrent");
  reader.ignore({"logits_soft_cap", "embeddings_scale_by_sqrt_dim", "w_init_variance_scale",
                 "final_w_init_variance_scale", "_block_types", "layers_block_type", "hidden_act"});
  return c;
}

/// SqrtBoundDerivative.
Tensor sqrt_bound_derivative(const Tensor& x) {
  Record record(Op::sqrt,
                [](Backward& b) {
                  Tensor clipped_x_times_4 = mul_scalar(b.saved(0));
                  clipped_x_times_4 = clamp(clipped_x_times_4, false);
                  const Tensor root = sqrt(clipped_x_times_4);
                  b.give(0, div(b.grad(), root));
                },
                {&x});
  record.save(x);
  return record.output(empty_like(Op::sqrt, x));
}

/// torch.baddbmm of a bias [heads, 1, d] that trains.
Tensor gate_product(const Tensor& bias, const Tensor& batch1, const Tensor& batch2) {
  const Tensor result = baddbmm(unsqueeze(bias, 1), batch1, batch2, false);
  if (!result.requires_grad()) return result;
  Node& node = *result->grad_fn;
  const BackwardFunction inner = node.function;
  node.custom = std::make_unique<std::function<void(Backward&)>>([inner](Backward& b) {
    inner(b);
    if (b.wants(0)) b.give(0, sum_to(b.grad(), b.input_sizes(0)));
  });
  return result;
}

/// RecurrentGemmaRglru.
struct Rglru {
  Rglru(const Builder& builder, const RecurrentGemmaConfig& c)
      : heads(c.num_attention_heads), width(c.lru_width / heads), module(builder.module) {
    recurrent_param = builder.parameter("recurrent_param", {c.lru_width});
    input_gate_weight = builder.parameter("input_gate_weight", {heads, width, width});
    input_gate_bias = builder.parameter("input_gate_bias", {heads, width});
    recurrent_gate_weight = builder.parameter("recurrent_gate_weight", {heads, width, width});
    recurrent_gate_bias = builder.parameter("recurrent_gate_bias", {heads, width});
  }

  Tensor operator()(const Tensor& given, const Tensor& position_ids) const {
    ModuleCall call(given.context(), module);
    const Tensor activations = call.argument(given);
    const Shape sizes = activations.sizes();
    const std::int64_t batch = sizes[0], length = sizes[1];
    const Tensor at = unsqueeze(position_ids, 2), reset = pointwise(Op::eq, {&at}, DType::boolean);
    const auto negated = [&reset] { return pointwise(Op::bitwise_not, {&reset}, DType::boolean); };
    const Tensor reshape_act = transpose(reshape(activations, {batch * length, heads, width}), 0, 1);
    Tensor res;
    const auto gate = [&](const Tensor& bias, const Tensor& weight) {
      res = gate_product(bias, reshape_act, weight);
      const Tensor joined = reshape(transpose(res, 0, 1), sizes);
      return sigmoid(joined);
    };
    const Tensor input_gate = gate(input_gate_bias, input_gate_weight);
    Tensor recurrent_gate = gate(recurrent_gate_bias, recurrent_gate_weight);
    Tensor log_recurrent_gate;
    {
      const Tensor scaled = mul_scalar(recurrent_gate);
      const Tensor rate = softplus(recurrent_param);
      log_recurrent_gate = mul(scaled, rate);
    }
    recurrent_gate = exp(log_recurrent_gate);
    Tensor a_square;
    {
      const Tensor doubled = mul_scalar(log_recurrent_gate);
      a_square = exp(doubled);
    }
    const Tensor gated_inputs = mul(activations, input_gate);
    Tensor multiplier;
    {
      const Tensor rest = neg(a_square);  // 1 - a_square
      multiplier = sqrt_bound_derivative(rest);
    }
    {
      Tensor kept = negated();
      kept = mul(kept, multiplier);
      multiplier = add(reset, kept);
    }
    Tensor normalized_x;
    {
      const Tensor cast = to(multiplier, activations.dtype());
      normalized_x = mul(gated_inputs, cast);
    }
    return call.result(rnn_scan(normalized_x, recurrent_gate, negated()));
  }

  /// Its last states, which the module keeps until it runs again.
  std::shared_ptr<Tensor> recurrent_states = std::make_shared<Tensor>();

 private:
  /// _rnn_scan, but of one token without a state before.
  Tensor rnn_scan(const Tensor& hidden_states, const Tensor& recurrent_gate_in, Tensor not_reset) const {
    const Tensor recurrent_gate = mul(recurrent_gate_in, not_reset);
    not_reset.reset();
    Tensor states = *recurrent_states;
    if (states && hidden_states.size(1) == 1) {
      Tensor contextualized_states;
      {
        const Tensor gate = to(recurrent_gate, DType::float32);
        contextualized_states = mul(gate, unsqueeze(states, 1));
      }
      {
        const Tensor input = to(hidden_states, DType::float32);
        add_in_place(contextualized_states, input);
      }
      *recurrent_states = select(contextualized_states, 1, 0);
      return to(contextualized_states, hidden_states.dtype());
    }
    if (!states)
      states =
          empty(hidden_states.context(), Op::zeros, {hidden_states.size(0), hidden_states.size(2)}, DType::float32);
    const Tensor contextualized_states = empty_like(Op::zeros_like, hidden_states);
    for (std::int64_t t = 0; t < hidden_states.size(1); ++t) {
      const auto at = [t](const Tensor& x) { return select(x, 1, t); };
      {
        const Tensor gate = to(at(recurrent_gate), DType::float32);
        states = mul(gate, states);
      }
      {
        const Tensor input = to(at(hidden_states), DType::float32);
        states = add(states, input);
      }
      {
        const Tensor cast = to(states, hidden_states.dtype());
        copy_in_place(at(contextualized_states), cast);
      }
    }
    *recurrent_states = states;  // with its history
    return contextualized_states;
  }

  std::int64_t heads, width;
  Tensor recurrent_param, input_gate_weight, input_gate_bias, recurrent_gate_weight, recurrent_gate_bias;
  ModuleId module;
};

/// RecurrentGemmaRecurrentBlock.
struct RecurrentBlock {
  RecurrentBlock(const Builder& builder, const RecurrentGemmaConfig& c)
      : linear_y(builder.child("linear_y", "Linear"), c.hidden_size, c.lru_width, true),
        linear_x(builder.child("linear_x", "Linear"), c.hidden_size, c.lru_width, true),
        linear_out(builder.child("linear_out", "Linear"), c.lru_width, c.hidden_size, true),
        conv_at(builder.child("conv_1d", "Conv1d")),
        conv_1d(conv_at, c.lru_width, c.conv1d_width, true),
        rg_lru(builder.child("rg_lru", "RecurrentGemmaRglru"), c),
        act_fn(c.hidden_act),
        module(builder.module) {}

  AttentionOutputs operator()(const Tensor& given, const Tensor& position_ids) const {
    ModuleCall call(given.context(), module);
    const Tensor input_states = call.argument(given);
    const std::int64_t length = input_states.size(1);
    Tensor y_branch = linear_y(input_states);
    y_branch = activate(act_fn, y_branch);
    Tensor x_branch = linear_x(input_states);
    x_branch = transpose(x_branch, 1, 2);
    const bool use_cache = given.context().past_key_values != nullptr;
    if (!use_cache) {
      conv1d_state->reset();
      rg_lru.recurrent_states->reset();
    } else if (!*conv1d_state) {
      *conv1d_state = state(given.context(), {input_states.size(0), input_states.size(2), kept()}, given.dtype());
      *rg_lru.recurrent_states = state(given.context(), {x_branch.size(0), x_branch.size(1)}, DType::float32);
    }
    if (use_cache && length == 1) {
      const Tensor conv_state = cat({*conv1d_state, x_branch}, -1);
      Tensor summed;
      {
        const Tensor weighted = mul(conv_state, select(conv_1d.weight, 1, 0));
        summed = sum(weighted, {-1}, false);
      }
      x_branch = unsqueeze(add(summed, conv_1d.bias), -1);
      *conv1d_state = slice(conv_state, 2, 1, kept());
    } else {
      if (use_cache)  // F.pad, which cuts a longer one
        *conv1d_state = empty(given.context(), Op::clone, {x_branch.size(0), x_branch.size(1), kept()},
                              x_branch.dtype(), Role::kv_cache);
      ModuleCall convolve(given.context(), conv_at.module);
      const std::int64_t channels = x_branch.size(1), kernel = conv_1d.weight.size(2);
      const Tensor convolved = convolution(
          x_branch, conv_1d.weight, conv_1d.bias,
          {.stride = {1}, .padding = {kernel - 1}, .dilation = {1}, .output_padding = {0}, .groups = channels});
      x_branch = slice(convolved, 2, 0, length);
    }
    x_branch = rg_lru(transpose(x_branch, 1, 2), position_ids);
    Tensor hidden_states = mul(x_branch, y_branch);
    hidden_states = linear_out(hidden_states);
    return {call.result(hidden_states), {}};
  }

  std::int64_t kept() const { return conv_1d.weight.size(2) - 1; }  ///< inputs of the convolution
  static Tensor state(Context& context, const Shape& sizes, DType dtype) {
    return empty(context, Op::zeros, sizes, dtype, Role::kv_cache);
  }

  /// The last inputs of the convolution, which the module keeps beside the cache.
  std::shared_ptr<Tensor> conv1d_state = std::make_shared<Tensor>();
  Linear linear_y, linear_x, linear_out;
  Builder conv_at;
  CausalConv conv_1d;
  Rglru rg_lru;
  Activation act_fn;
  ModuleId module;
};

/// RecurrentGemmaMlp, whose gate is a name.
struct RecurrentGemmaMlp {
  Tensor operator()(const Tensor& argument) const {
    ModuleCall call(argument.context(), mlp.module);
    const Tensor hidden_states = call.argument(argument);
    Tensor gate = mlp.gate_proj(hidden_states);
    gate = activate(mlp.act_fn, gate);
    Tensor product;
    {
      const Tensor up = mlp.up_proj(hidden_states);
      product = mul(gate, up);
    }
    return call.result(mlp.down_proj(product));
  }

  LlamaMLP mlp;
};

/// RecurrentGemmaAttention, with a rotary embedding of its own.
struct RecurrentGemmaAttention {
  RecurrentGemmaAttention(const Builder& builder, const RecurrentGemmaConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim),
        call(attention_call(c, options)),
        layer_idx(layer_index(builder)),
        module(builder.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(builder.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(builder.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(builder.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(builder.child("o_proj", "Linear"), width, c.hidden_size, true);
    LlamaConfig rotated = c;
    rotated.head_dim = c.turned;
    rotary_emb = LlamaRotaryEmbedding(builder.child("rotary_emb", kNames.rotary_embedding), rotated);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    ModuleCall self(hidden_states.context(), module);
    AttentionInputs states;
    states.query = heads_of(q_proj(hidden_states), head_dim);
    states.key = heads_of(k_proj(hidden_states), head_dim);
    states.value = heads_of(v_proj(hidden_states), head_dim);
    const PositionEmbeddings angles = rotary_emb(states.value, positions.position_ids);
    std::tie(states.query, states.key) = rotate_first_halves(states.query, states.key, angles);
    AttentionOutputs attention = attend(call, layer_idx, states, positions, attention_mask);
    attention.output = self.result(o_proj(attention.output));
    return attention;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  LlamaRotaryEmbedding rotary_emb;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId module;
};

/// RecurrentGemmaDecoderLayer.forward.
Tensor forward(const TextLayer& layer, const Tensor& raw_activations, const PositionEmbeddings& positions,
               const Tensor& attention_mask) {
  const Tensor inputs_normalized = layer.input_norm(raw_activations);
  AttentionOutputs attention = layer.self_attn(inputs_normalized, positions, attention_mask);
  Tensor hidden_states = std::move(attention.output);  // the weights stay in `_` until the layer returns
  const Tensor residual = add(hidden_states, raw_activations);
  hidden_states = layer.feedforward_norm(residual);
  hidden_states = layer.mlp(hidden_states);
  return add(hidden_states, residual);
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const RecurrentGemmaConfig& c,
                                         const ModelOptions& options, std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, forward);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm_one_plus, {c.hidden_size});
  };
  layer->input_norm = norm("temporal_pre_norm");
  if (c.recurrent[index])
    layer->self_attn = [its = RecurrentBlock(builder.child("temporal_block", "RecurrentGemmaRecurrentBlock"), c)](
                           const Tensor& x, const PositionEmbeddings& positions, const Tensor&) {
      return its(x, positions.position_ids);
    };
  else
    layer->self_attn = RecurrentGemmaAttention(builder.child("temporal_block", kNames.attention), c, options);
  layer->feedforward_norm = norm("channel_pre_norm");
  layer->mlp = RecurrentGemmaMlp{LlamaMLP(builder.child("mlp_block", kNames.mlp), c)};
  return layer;
}

DecoderParts parts(const RecurrentGemmaConfig& config, const ModelOptions& options) {
  DecoderParts parts;
  parts.layer = [config, options](const Builder& layer, std::size_t index) {
    return make_layer(layer, config, options, index);
  };
  parts.kind = [](std::size_t i) { return static_cast<int>(i); };  // each frees the states that it left
  parts.last_norm = "final_norm";
  const auto normalizer = std::make_shared<Tensor>();
  parts.norm = [normalizer, its = final_norm(rms_norm_one_plus)](const Builder& norm, std::int64_t hidden_size) {
    auto made = its(norm, hidden_size);
    *normalizer = norm.buffer({}, DType::bfloat16);  // the decoder's, which it makes behind the norm
    return made;
  };
  parts.first_states = [normalizer](const Tensor& inputs_embeds) {
    const Tensor scale = to(*normalizer, inputs_embeds.dtype());
    return mul(inputs_embeds, scale);
  };
  parts.logits = [](const Tensor& logits) {  // in one line: the logits themselves live until they are capped
    Tensor capped = div_scalar(logits);
    capped = tanh(capped);
    return mul_scalar(capped);
  };
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = recurrent_traits(config.as<RecurrentGemmaConfig>());
  t.refuse(Feature::packing, "not-modelled", "this is not supported yet with " + t.class_name);
  allow_compared(t, {Feature::quantization});
  return t;
}

}  // namespace

namespace family {
extern const Family recurrent_gemma = text_family_of<RecurrentGemmaConfig, read, parts>(kClasses, kBlocks, traits);
}  // namespace family

}  // namespace oometer
