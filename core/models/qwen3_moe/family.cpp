#include "config/reader.h"
#include "models/kit/mixture.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/qwen3_moe/modeling_qwen3_moe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"Qwen3MoeForCausalLM",    "Qwen3MoeModel", "Qwen3MoeDecoderLayer",
                                 "Qwen3MoeAttention",      "Qwen3MoeMLP",   "Qwen3MoeRMSNorm",
                                 "Qwen3MoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"qwen3_moe", kNames.causal_lm},
                                   {"qwen3_moe", "Qwen3MoeForSequenceClassification"},
                                   {"qwen3_moe", "Qwen3MoeForTokenClassification"},
                                   {"qwen3_moe", "Qwen3MoeForQuestionAnswering"}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig d;
  d.names = &kNames;
  d.vocab_size = 151936;
  d.hidden_size = 2048;
  d.intermediate_size = 6144;
  d.num_hidden_layers = 24;
  d.num_key_value_heads = 4;
  d.max_position_embeddings = 32768;
  TextConfig c = read_text_sizes(reader, d);
  c.qkv_bias = c.output_bias = reader.boolean("attention_bias", false);
  if (reader.boolean("use_sliding_window", false)) {
    if (!reader.is_null("sliding_window")) c.sliding_window = reader.integer("sliding_window", 4096);
  } else {
    reader.ignore({"sliding_window"});
  }
  reader.ignore({"max_window_layers"});
  check_llama_heads(reader, c);
  read_experts(reader, c, "num_experts", "num_local_experts",
               {.num_experts = 128, .num_experts_per_tok = 8, .balances = true});
  c.experts.intermediate_size = reader.integer("moe_intermediate_size", 768);
  c.experts.norm_topk_prob = reader.boolean("norm_topk_prob", false);
  read_sparse_layers(reader, c);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t index) {
  AttentionParts its;
  its.norms_at = HeadNorms::projected;
  its.norm = norm_of(options.liger, rms_norm);
  its.norm_type = kNames.rms_norm;
  return pre_norm_layer(builder, c, options, its, [&](const Builder& layer) -> TextLayer::MLP {
    if (c.experts.are_in(index)) {
      const Builder at = layer.child("mlp", "Qwen3MoeSparseMoeBlock");
      SparseMoeBlock block(at);
      block.experts = make_experts(at, "Qwen3MoeExperts", c, {.loop = ExpertsLoop::masks_one_more});
      block.experts.liger = options.liger.swiglu;
      block.gate = Router(at.child("gate", "Qwen3MoeTopKRouter"), c, best_probabilities);
      return block;
    }
    return LlamaMLP(layer.child("mlp", kNames.mlp), c);
  });
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return parts_of(config, options, make_layer);
}

ModelTraits traits(const FamilyConfig& config) {
  ModelTraits t = traits_of_text_family(config);
  allow_compared(t, {Feature::quantization, Feature::zero3, Feature::fsdp, Feature::liger});
  t.liger.experts = true;
  const auto& c = config.as<TextConfig>();
  for (std::int32_t i = 0; i < c.num_hidden_layers; ++i)  // it looks for experts in every layer
    if (!c.experts.are_in(static_cast<std::size_t>(i))) t.liger.lacks.swiglu = true;
  return t;
}

}  // namespace

namespace family {
extern const Family qwen3_moe = [] {
  Family its = text_family<read, balanced<parts>>(kClasses, kBlocks, traits);
  its.convert_targets = convert_mixture_targets;
  return its;
}();
}  // namespace family

}  // namespace oometer
