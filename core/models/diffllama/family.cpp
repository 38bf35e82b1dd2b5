#include <tuple>

#include "config/reader.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "nn/kv_cache.h"
#include "ops/ops.h"
#include "ops/vision.h"

/// transformers 5.23, models/diffllama/modeling_diffllama.py: Llama, whose attention is the difference of two.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"DiffLlamaForCausalLM",    "DiffLlamaModel", "DiffLlamaDecoderLayer",
                                 "DiffLlamaAttention",      "DiffLlamaMLP",   "DiffLlamaRMSNorm",
                                 "DiffLlamaRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"diffllama", kNames.causal_lm},
                                   {"diffllama", "DiffLlamaForSequenceClassification"},
                                   {"diffllama", "DiffLlamaForTokenClassification"},
                                   {"diffllama", "DiffLlamaForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.hidden_size = 2048;
  d.intermediate_size = 8192;
  d.num_hidden_layers = 16;
  d.num_key_value_heads = 0;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  if (c.attention_dropout != 0)
    reader.fail_found("attention_dropout", "inconsistent", "the class refuses it: expected 0");
  if (c.num_key_value_heads % 2 != 0)
    reader.fail_found("num_key_value_heads", "inconsistent", "values are cut in two halves: expected an even number");
  reader.ignore({"lambda_std_dev"});
  return c;
}

/// DiffLlamaAttention.
struct DiffLlamaAttention {
  DiffLlamaAttention(const Builder& at, const TextConfig& c, const ModelOptions& options)
      : head_dim(c.head_dim), call(attention_call(c, options)), layer_idx(layer_index(at)), module(at.module) {
    const std::int64_t width = c.num_attention_heads * head_dim, kv_width = c.num_key_value_heads * head_dim;
    q_proj = Linear(at.child("q_proj", "Linear"), c.hidden_size, width, c.qkv_bias);
    k_proj = Linear(at.child("k_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    v_proj = Linear(at.child("v_proj", "Linear"), c.hidden_size, kv_width, c.qkv_bias);
    o_proj = Linear(at.child("o_proj", "Linear"), width, c.hidden_size, c.output_bias);
    for (auto [weight, name] : {std::pair{&lambda_q1, "lambda_q1"}, std::pair{&lambda_k1, "lambda_k1"},
                                std::pair{&lambda_q2, "lambda_q2"}, std::pair{&lambda_k2, "lambda_k2"}})
      *weight = at.parameter(name, {head_dim});
    groupnorm = at.child("groupnorm", "RMSNorm").module;
  }

  /// `torch.exp(torch.sum(q * k, dim=-1, dtype=torch.float32)).to(dtype)`
  static Tensor lambda(const Tensor& q, const Tensor& k, DType dtype) {
    Context& context = q.context();
    Tensor product = mul(q, k);
    {
      const Scoped<bool> in_float32(context.autocast.enabled, true);  // which is what the dtype asks for
      product = sum(product, {-1}, false);
    }
    product = exp(product);
    return to(product, dtype);
  }

  AttentionOutputs operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                              const Tensor& attention_mask) const {
    Context& context = hidden_states.context();
    ModuleCall self(context, module);
    AttentionInputs states = project(hidden_states, q_proj, k_proj, v_proj, head_dim, false);
    std::tie(states.query, states.key) = rotate_halves(states.query, states.key, positions);
    if (KvCache* const cache = context.past_key_values) {
      KvCache::States cached = cache->update(layer_idx, states.key, states.value);
      states.key = std::move(cached.keys);
      states.value = std::move(cached.values);
    }
    const std::int64_t half = states.value.size(1) / 2;
    Tensor value_states1, value_states2;
    {
      const TensorList halves = split(states.value, {half, half}, 1);
      value_states1 = repeat(halves[0], {1, 2, 1, 1});
      value_states2 = repeat(halves[1], {1, 2, 1, 1});
    }
    const Sequences sequences{positions.position_ids, positions.rows, positions.cu_seq_lens};
    AttentionOutputs first =
        attention_forward(call, states.query, states.key, value_states1, attention_mask, sequences);
    AttentionOutputs second =
        attention_forward(call, states.query, states.key, value_states2, attention_mask, sequences);
    Tensor attn_output = cat({first.output, second.output}, -1);
    const std::int64_t heads = attn_output.size(2) / 2;
    {
      const TensorList halves = split(attn_output, {heads, heads}, 2);
      first.output = halves[0];
      second.output = halves[1];
    }
    const Tensor lambda_1 = lambda(lambda_q1, lambda_k1, states.query.dtype()),
                 lambda_2 = lambda(lambda_q2, lambda_k2, states.query.dtype());
    Tensor lambda_full;
    {
      const Tensor difference = sub(lambda_1, lambda_2);
      lambda_full = add_scalar(difference);
    }
    {
      const Tensor scaled = mul(lambda_full, second.output);
      attn_output = sub(first.output, scaled);
    }
    {
      const Tensor normed = [&] {
        const ModuleScope norm(context, groupnorm);
        const Tensor input = autocast_float32(attn_output);
        return rms_norm(input, {}, 1);
      }();
      attn_output = mul_scalar(normed);
    }
    const Shape& sizes = attn_output.sizes();
    attn_output = reshape(attn_output, {sizes[0], sizes[1], sizes[2] * sizes[3]});
    first.output = self.result(o_proj(attn_output));
    return first;
  }

  Linear q_proj, k_proj, v_proj, o_proj;
  Tensor lambda_q1, lambda_k1, lambda_q2, lambda_k2;
  std::int64_t head_dim;
  AttentionCall call;
  std::size_t layer_idx;
  ModuleId groupnorm = 0, module;
};

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  layer->self_attn = DiffLlamaAttention(builder.child("self_attn", kNames.attention), c, options);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->feedforward_norm = Norm(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family diffllama =
    text_family<read, parts>(kClasses, kBlocks, traits_with<Feature::quantization, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
