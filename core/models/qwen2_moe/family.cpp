#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/qwen2_moe/modeling_qwen2_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Qwen2MoeForCausalLM",    "Qwen2MoeModel", "Qwen2MoeDecoderLayer",
                                 "Qwen2MoeAttention",      "Qwen2MoeMLP",   "Qwen2MoeRMSNorm",
                                 "Qwen2MoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"qwen2_moe", kNames.causal_lm},
                                   {"qwen2_moe", "Qwen2MoeForSequenceClassification"},
                                   {"qwen2_moe", "Qwen2MoeForTokenClassification"},
                                   {"qwen2_moe", "Qwen2MoeForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 151936;
  d.hidden_size = 2048;
  d.intermediate_size = 5632;
  d.num_hidden_layers = 24;
  d.num_attention_heads = d.num_key_value_heads = 16;
  d.max_position_embeddings = 32768;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = reader.boolean("qkv_bias", true);
  check_llama_heads(reader, c);
  if (reader.boolean("use_sliding_window", false)) {
    const std::int64_t first_full = reader.integer("max_window_layers", 28, non_negative);
    read_mixed_layers(reader, c, 2);
    for (std::int64_t i = first_full; i < c.num_hidden_layers && reader.texts("layer_types").empty(); ++i)
      c.layer_windows[static_cast<std::size_t>(i)] = 0;
  } else {
    reader.ignore({"sliding_window", "max_window_layers"});
    for (const std::string& type : reader.texts("layer_types"))
      if (type != "full_attention")
        reader.fail_found("layer_types", "inconsistent", "layers that slide need \"use_sliding_window\": true");
  }
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 60, .num_experts_per_tok = 4, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 1408);
  c.experts.shared_intermediate_size = reader.integer("shared_expert_intermediate_size", 5632);
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", false);
  read_sparse_layers(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options);
  if (c.experts.are_in(index))
    layer->mlp = BlockWithGatedShared(builder.child("mlp", "Qwen2MoeSparseMoeBlock"), c, "Qwen2MoeTopKRouter",
                                      "Qwen2MoeExperts");
  else
    layer->mlp = LlamaMLP(builder.child("mlp", kNames.mlp), c);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  DecoderParts parts = parts_of(config, options, make_layer);
  parts.makes_both_masks = true;
  return parts;
}

}  // namespace

namespace family {
extern const Family qwen2_moe = mixture_family<read, parts>(
    kClasses, kBlocks, nullptr, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
