#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "config/reader.h"
#include "models/granite_swa/granite_swa.h"
#include "ops/logsumexp.h"
#include "ops/ops.h"

/// transformers 5.23, models/granite_swa/modeling_granite_swa.py.
namespace oometer {

void read_granite_swa_layers(ConfigReader& reader, TextConfig& c) {
  read_mixed_layers(reader, c, 1, 128);
  if (!reader.has("layer_types"))  // every fourth layer, from the first on, sees all
    for (std::size_t i = 0; i < c.layer_windows.size(); ++i) c.layer_windows[i] = i % 4 == 0 ? 0 : c.sliding_window;
  const nlohmann::json* const given = reader.find("layer_rope_theta");
  if (!given) return;
  if (!given->is_array() || static_cast<std::int64_t>(given->size()) != c.num_hidden_layers)
    return reader.fail("layer_rope_theta", "inconsistent", "expected a number for each layer");
  std::set<double> thetas;
  for (const nlohmann::json& theta : *given) {
    if (!theta.is_number()) return reader.fail("layer_rope_theta", "wrong-type", "expected a number for each layer");
    c.rotates.push_back(theta != 0);  // the others have no positions
    if (theta != 0) thetas.insert(theta.get<double>());
  }
  if (thetas.size() != 1)
    reader.fail("layer_rope_theta", "not-modelled",
                "angles of several frequencies, or of none, are not supported yet: expected one beside 0");
}

namespace {

/// eager_attention_forward: what attention gives is scaled by how little of it a sink takes.
AttentionOutputs attend_with_scaling_sinks(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask,
                                           const Tensor& sinks) {
  const Tensor& query = states.query;
  const std::int64_t heads = query.size(1);
  const Tensor key_states = repeat_kv(states.key, heads), value_states = repeat_kv(states.value, heads);
  Tensor attn_weights = matmul(query, transpose(key_states, 2, 3));
  attn_weights = mul_scalar(attn_weights);
  if (mask) attn_weights = add(attn_weights, mask);
  const Tensor lse = logsumexp(attn_weights, false);
  Tensor sink_scale;
  {
    Tensor difference = sub(lse, view(sinks, {1, heads, 1}));
    difference = to(difference, DType::float32);
    sink_scale = sigmoid(difference);
  }
  {
    const Tensor probabilities = softmax(attn_weights, DType::float32);
    attn_weights = to(probabilities, query.dtype());
  }
  attn_weights = dropout(attn_weights, call.dropout);
  Tensor attn_output = matmul(attn_weights, value_states);
  {
    const Tensor scale = to(unsqueeze(sink_scale, -1), attn_output.dtype());
    attn_output = mul(attn_output, scale);
  }
  return {contiguous(transpose(attn_output, 1, 2)), attn_weights};
}

}  // namespace

TextAttention granite_swa_attention(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                    std::size_t layer) {
  AttentionParts its;
  its.with_sinks = attend_with_scaling_sinks;
  if (!c.rotates_in(layer)) its.rotate = nullptr;
  return {builder, c, options, its};
}

void complete_granite_swa(DecoderParts& parts, const TextConfig& config) {
  parts.scale = mul_scalar;
  parts.makes_both_masks = true;
  parts.rotates = [config](std::size_t i) { return config.rotates_in(i); };
  parts.logits = [](const Tensor& logits) { return div_scalar(logits); };
  // rotary_embs: one of each frequency, of which there is one, while rotary_emb stays unused. They are the same memory.
  parts.rest = [config](const Builder& decoder) {
    const LlamaRotaryEmbedding used(decoder.child("rotary_embs", config.names->rotary_embedding, 0), config);
  };
}

ModelTraits granite_swa_traits(const FamilyConfig& config) {
  ModelTraits t = traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>(config);
  t.refuse(Feature::sdpa, "inconsistent", "it has attention sinks, which SDPA has not: expected eager");
  t.refuse(Feature::flash_attention_2, "inconsistent", "it has attention sinks, which this has not: expected eager");
  return t;
}

namespace {

constexpr LlamaClassNames kNames{"GraniteSWAForCausalLM",    "GraniteSWAModel", "GraniteSWADecoderLayer",
                                 "GraniteSWAAttention",      "GraniteSWAMLP",   "GraniteSWARMSNorm",
                                 "GraniteSWARotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"granite_swa", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 100'352;
  d.hidden_size = 2560;
  d.intermediate_size = 8192;
  d.num_hidden_layers = 24;
  d.num_attention_heads = 20;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 8192;
  d.tie_word_embeddings = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  c.mlp_bias = reader.boolean("mlp_bias", false);
  reader.ignore({"embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier"});
  check_llama_heads(reader, c);
  read_granite_swa_layers(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  layer->self_attn = granite_swa_attention(builder.child("self_attn", kNames.attention), c, options, index);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  layer->scales_residual = true;
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  complete_granite_swa(parts, config);
  return parts;
}

}  // namespace

namespace family {
extern const Family granite_swa = text_family<read, parts>(kClasses, kBlocks, granite_swa_traits);
}  // namespace family

}  // namespace oometer
