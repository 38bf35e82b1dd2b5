#include <numeric>
#include <string>
#include <vector>

#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/qwen3_vl/config.h"

/// The language models of transformers 5.23, models/qwen3_vl/modeling_qwen3_vl.py and
/// models/qwen3_vl_moe/modeling_qwen3_vl_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kTextNames{"Qwen3VLForConditionalGeneration",
                                     "Qwen3VLTextModel",
                                     "Qwen3VLTextDecoderLayer",
                                     "Qwen3VLTextAttention",
                                     "Qwen3VLTextMLP",
                                     "Qwen3VLTextRMSNorm",
                                     "Qwen3VLTextRotaryEmbedding"};
constexpr LlamaClassNames kMoeTextNames{"Qwen3VLMoeForConditionalGeneration",
                                        "Qwen3VLMoeTextModel",
                                        "Qwen3VLMoeTextDecoderLayer",
                                        "Qwen3VLMoeTextAttention",
                                        "Qwen3VLMoeTextMLP",
                                        "Qwen3VLMoeTextRMSNorm",
                                        "Qwen3VLMoeTextRotaryEmbedding"};

}  // namespace

TextConfig read_qwen3_vl_sizes(ConfigReader& reader, const TextConfig& defaults, std::int64_t head_dim) {
  TextConfig c = read_text_sizes(reader, defaults, head_dim);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  check_llama_heads(reader, c);
  ConfigReader rope = reader.object(reader.has("rope_scaling") ? "rope_scaling" : "rope_parameters");
  const std::vector<std::int64_t> sections =
      rope.has("mrope_section") ? rope.integers("mrope_section") : std::vector<std::int64_t>{24, 20, 20};
  if (sections.size() != 3 || std::accumulate(sections.begin(), sections.end(), std::int64_t{0}) * 2 != c.head_dim)
    rope.fail("mrope_section", "inconsistent",
              "found sections that are not half of a head together (24, 20 and 20 where there is none); they must be " +
                  std::to_string(c.head_dim / 2));
  reader.ignore({"model_type"});
  return c;
}

namespace {

TextConfig read_qwen3_vl_text(ConfigReader& reader) {
  TextConfig d;
  d.names = &kTextNames;
  d.vocab_size = 151936;
  d.intermediate_size = 22016;
  d.max_position_embeddings = 128000;
  return read_qwen3_vl_sizes(reader, d, 128);
}

TextConfig read_qwen3_vl_moe_text(ConfigReader& reader) {
  TextConfig d;
  d.names = &kMoeTextNames;
  d.vocab_size = 151936;
  d.hidden_size = 2048;
  d.intermediate_size = 5632;
  d.num_hidden_layers = 24;
  d.num_attention_heads = d.num_key_value_heads = 16;
  d.max_position_embeddings = 128000;
  TextConfig c = read_qwen3_vl_sizes(reader, d, 0);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 60, .num_experts_per_tok = 4, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 1408);
  c.experts.norm_topk_prob = true;  // whatever the config says
  reader.ignore({"norm_topk_prob"});
  read_sparse_layers(reader, c);
  return c;
}

// Qwen3VLTextRotaryEmbedding.forward: rows' and columns' angles are written over those of the frames.
PositionEmbeddings interleaved_rotary(const LlamaRotaryEmbedding& rotary_emb, const Tensor& position_ids, DType dtype) {
  Context& context = position_ids.context();
  ModuleCall call(context, rotary_emb.module);
  const NoGrad no_grad(context);
  Tensor cos, sin;  // they go after freqs, cos first
  Tensor freqs = rotary_angles(position_ids, rotary_emb.inv_freq);
  const auto of = [&](Op op) {
    const Tensor values = pointwise(op, {&freqs}, DType::float32);
    return mul_scalar(values);
  };
  cos = of(Op::cos);
  sin = of(Op::sin);
  const auto recomposition_frequencies = [](const Tensor& freq) {
    const Tensor freqs_thw = select(freq, 0, 0);
    return cat({freqs_thw, freqs_thw}, -1);
  };
  sin = recomposition_frequencies(sin);
  cos = recomposition_frequencies(cos);
  PositionEmbeddings result{to(cos, dtype), to(sin, dtype)};
  freqs.reset();
  cos.reset();
  return {call.result(result.cos), call.result(result.sin)};
}

constexpr Qwen3VLMoeNames kMoe{"Qwen3VLMoeTextSparseMoeBlock", "Qwen3VLMoeTextExperts", "Qwen3VLMoeTextTopKRouter"};

// Qwen3VLTextDecoderLayer, Qwen3VLMoeTextDecoderLayer
std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index, const Qwen3VLMoeNames& names) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, c.names->rms_norm), rms_norm, {c.hidden_size});
  };
  AttentionParts its;
  its.norms_at = HeadNorms::projected;
  its.norm = rms_norm;
  its.norm_type = c.names->rms_norm;
  layer->self_attn = TextAttention(builder.child("self_attn", c.names->attention), c, options, its);
  if (c.experts.num_experts != 0 && c.experts.are_in(index)) {
    const Builder at = builder.child("mlp", names.sparse_block);
    SparseMoeBlock block(at);
    block.experts = make_experts(at, names.experts, c, {.checkpoint = {}});
    block.gate = Router(at.child("gate", names.router), c, best_probabilities);
    layer->mlp = std::move(block);
  } else {
    layer->mlp = LlamaMLP(builder.child("mlp", c.names->mlp), c);
  }
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

}  // namespace

DecoderParts make_qwen3_vl_parts(const TextConfig& config, const ModelOptions& options, const Qwen3VLMoeNames& names) {
  DecoderParts parts = parts_of(config, options,
                                [names](const Builder& builder, const TextConfig& c, const ModelOptions& its,
                                        std::size_t index) { return make_layer(builder, c, its, index, names); });
  parts.norm = final_norm(rms_norm);
  parts.rotary = interleaved_rotary;
  if (config.experts.num_experts != 0)
    parts.kind = [experts = config.experts](std::size_t i) { return int{experts.are_in(i)}; };
  return parts;
}

namespace {

DecoderParts make_parts(const TextConfig& config, const ModelOptions& options) {
  return make_qwen3_vl_parts(config, options, kMoe);
}

}  // namespace

constexpr Qwen3VLClass kQwen3VL{"qwen3_vl",
                                kTextNames.causal_lm,
                                "Qwen3VLModel",
                                "Qwen3VLVisionModel",
                                "Qwen3VLVisionPatchEmbed",
                                "Qwen3VLVisionRotaryEmbedding",
                                "Qwen3VLVisionBlock",
                                "Qwen3VLVisionAttention",
                                "Qwen3VLVisionMLP",
                                "Qwen3VLVisionPatchMerger",
                                true,
                                read_qwen3_vl_text,
                                make_parts};

constexpr Qwen3VLClass kQwen3VLMoe{"qwen3_vl_moe",
                                   kMoeTextNames.causal_lm,
                                   "Qwen3VLMoeModel",
                                   "Qwen3VLMoeVisionModel",
                                   "Qwen3VLMoeVisionPatchEmbed",
                                   "Qwen3VLMoeVisionRotaryEmbedding",
                                   "Qwen3VLMoeVisionBlock",
                                   "Qwen3VLMoeVisionAttention",
                                   "Qwen3VLMoeVisionMLP",
                                   "Qwen3VLMoeVisionPatchMerger",
                                   true,
                                   read_qwen3_vl_moe_text,
                                   balanced<make_parts>};

}  // namespace oometer
