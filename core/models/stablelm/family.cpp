#include <functional>
#include <vector>

#include "config/reader.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "ops/ops.h"

/// transformers 5.23, models/stablelm/modeling_stablelm.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"StableLmForCausalLM", "StableLmModel", "StableLmDecoderLayer",   "StableLmAttention",
                                 "StableLmMLP",         "LayerNorm",     "StableLmRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"stablelm", kNames.causal_lm},
                                   {"stablelm", "StableLmForSequenceClassification"},
                                   {"stablelm", "StableLmForTokenClassification"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 50304;
  d.hidden_size = 2560;
  d.intermediate_size = 6912;
  d.max_position_embeddings = 4096;
  TextConfig c = read_text_sizes(reader, d);
  share_hidden_size(reader, c);
  c.qkv_bias = reader.boolean("use_qkv_bias", false);
  c.norms_queries = reader.boolean("qk_layernorm", false);
  c.is_parallel = reader.boolean("use_parallel_residual", false);
  c.layer_dropout = reader.number("hidden_dropout", 0, 0, 1);
  c.classifier.dropout = 0;
  reader.ignore({"layer_norm_eps"});
  read_partial_rotary(reader, c, 0.25);
  check_llama_heads(reader, c);
  return c;
}

/// StableLmLayerNormPerHead.
std::function<Tensor(const Tensor&)> norm_per_head(const Builder& builder, std::int64_t heads, std::int64_t size) {
  std::vector<Norm> norms;
  for (std::int32_t i = 0; i < heads; ++i)
    norms.emplace_back(builder.child("norms", "LayerNorm", i), torch_layer_norm, Shape{size});
  return [norms, module = builder.module](const Tensor& argument) {
    ModuleCall call(argument.context(), module);
    const Tensor hidden_states = call.argument(argument);
    const TensorList states_per_heads = split(hidden_states, std::vector<std::int64_t>(norms.size(), 1), 1);
    std::vector<Tensor> normed;
    for (std::size_t i = 0; i < norms.size(); ++i) normed.push_back(norms[i](states_per_heads[i]));
    return call.result(cat(normed, 1));
  };
}

/// StableLmDecoderLayer.forward without use_parallel_residual.
Tensor one_by_one(const TextLayer& layer, const Tensor& hidden_in, const PositionEmbeddings& positions,
                  const Tensor& attention_mask) {
  const Tensor hidden_states = layer.input_norm(hidden_in);
  const AttentionOutputs attention = layer.self_attn(hidden_states, positions, attention_mask);
  const Tensor residual = add(hidden_in, attention.output);
  Tensor mlp_output = layer.mlp(layer.feedforward_norm(residual));
  mlp_output = dropout(mlp_output, layer.residual_dropout);
  return add(residual, mlp_output);
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, c.is_parallel ? parallel : one_by_one);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), torch_layer_norm, {c.hidden_size}, true);
  };
  AttentionParts its;
  its.cuts_heads = its.projects_first = true;
  if (c.norms_queries) its.norms_at = HeadNorms::transposed;
  its.q_norm = "q_layernorm";
  its.k_norm = "k_layernorm";
  its.norm_type = "StableLmLayerNormPerHead";
  its.make_norm = norm_per_head;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  if (!c.is_parallel) layer->feedforward_norm = norm("post_attention_layernorm");
  layer->residual_dropout = c.layer_dropout;
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.norm = final_norm(torch_layer_norm, true);
  parts.hands_bounds = false;
  return parts;
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = text_traits(config.as<TextConfig>());
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp});
  t.ia3_targets = t.ia3_feedforward = t.ln_tuning_targets = {};  // peft knows it for LoRA alone
  return t;
}

}  // namespace

namespace family {
extern const Family stablelm =
    text_family<read, parts>(kClasses, kBlocks, traits, without_dropout<TextConfig, &TextConfig::layer_dropout>);
}  // namespace family

}  // namespace oometer
