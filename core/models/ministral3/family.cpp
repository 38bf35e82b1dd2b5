#include "config/reader.h"
#include "models/kit/text_family.h"
#include "models/llama/llama.h"
#include "models/ministral3/ministral3.h"
#include "ops/ops.h"

/// transformers 5.23, models/ministral3/modeling_ministral3.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Ministral3ForCausalLM",    "Ministral3Model", "Ministral3DecoderLayer",
                                 "Ministral3Attention",      "Ministral3MLP",   "Ministral3RMSNorm",
                                 "Ministral3RotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"ministral3", kNames.causal_lm},
                                   {"ministral3", "Ministral3ForSequenceClassification"},
                                   {"ministral3", "Ministral3ForTokenClassification"},
                                   {"ministral3", "Ministral3ForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

}  // namespace

TextConfig read_ministral3_config(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 131072;
  d.intermediate_size = 14336;
  d.num_hidden_layers = 34;
  d.num_key_value_heads = 8;
  d.max_position_embeddings = 262'144;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d, 128);
  c.sliding_window = reader.optional_integer("sliding_window").value_or(0);
  if (reader.is_object("rope_parameters") && !reader.object("rope_parameters").has("llama_4_scaling_beta"))
    reader.fail("rope_parameters", "inconsistent", "found no llama_4_scaling_beta, with which queries are scaled");
  check_llama_heads(reader, c);
  return c;
}

namespace {

/// 1 + beta * torch.log(1 + torch.floor(position_ids / original_max_position_embeddings))
Tensor get_llama_4_attn_scale(const Tensor& position_ids) {
  Tensor scaling = pointwise(Op::div, {&position_ids}, DType::float32);
  for (const Op op : {Op::floor, Op::add, Op::log, Op::mul, Op::add})
    scaling = pointwise(op, {&scaling}, DType::float32);
  return view(scaling, {scaling.size(0), 1, scaling.size(1), 1});
}

}  // namespace

Tensor scale_by_positions(const Tensor& query, const PositionEmbeddings& positions) {
  Tensor scale = get_llama_4_attn_scale(positions.position_ids);
  scale = to(scale, query.dtype());
  return mul(query, scale);
}

namespace {

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  AttentionParts its;
  its.scale = scale_by_positions;
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options, its);
  layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

}  // namespace

DecoderParts ministral3_parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

namespace family {
extern const Family ministral3 = text_family<read_ministral3_config, ministral3_parts>(
    kClasses, kBlocks, traits_with<Feature::quantization, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
