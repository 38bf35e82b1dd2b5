#include "config/reader.h"
#include "models/kit/mixture.h"

/// transformers 5.23, models/olmoe/modeling_olmoe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"OlmoeForCausalLM",    "OlmoeModel",   "OlmoeDecoderLayer",   "OlmoeAttention",
                                 "OlmoeSparseMoeBlock", "OlmoeRMSNorm", "OlmoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"olmoe", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 50304;
  d.hidden_size = 2048;
  d.intermediate_size = 2048;
  d.num_hidden_layers = 16;
  d.num_attention_heads = 16;
  d.num_key_value_heads = 0;
  d.max_position_embeddings = 4096;
  d.has_pad_token = true;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  reader.refuse("clip_qkv", "queries, keys and values that are clamped are not supported yet");
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 64, .num_experts_per_tok = 8, .balances = true});
  c.experts.intermediate_size = c.intermediate_size;
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", false);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  AttentionParts its;
  its.norms_at = HeadNorms::whole;
  its.norm = rms_norm;
  its.norm_type = kNames.rms_norm;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) {
    const Builder at = layer.child("mlp", kNames.mlp);
    SparseMoeBlock block(at);
    block.gate = Router(at.child("gate", "OlmoeTopKRouter"), c, best_probabilities);
    block.experts = make_experts(at, "OlmoeExperts", c);
    return block;
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

}  // namespace

namespace family {
extern const Family olmoe = mixture_family<read, parts>(
    kClasses, kBlocks, convert_mixture_targets, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
