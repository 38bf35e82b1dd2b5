#pragma once

#include <cstdint>
#include <vector>

#include "config/activation.h"
#include "models/llama/config.h"

namespace oometer {

class ConfigReader;

/// How a class that chooses the tokens that attention sees turns what it chooses by.
enum class IndexerRotary : std::uint8_t {
  none,    ///< attention sees all tokens
  halves,  ///< DeepseekV32Indexer
  pairs    ///< GlmMoeDsaIndexer
};

/// What DeepSeek-V2's classes and DeepSeek-V3's are called, and do otherwise.
/// What these classes do otherwise than DeepSeek-V2's.
struct DeepseekVariant {
  bool is_v3 = false;  ///< sigmoid scores with a bias, chosen by groups; cosines and sines in place of complex numbers
  bool has_layer_types = false;  ///< mlp_layer_types says which layers have experts
  bool biases_float32 = false;   ///< the router's bias is float32 whatever the model is
  bool has_softmax = false;      ///< its scores are probabilities, without a bias
  bool scales_queries = false;   ///< with their positions, as Ministral 3 does
  bool gates_heads = false;      ///< what a head gives is multiplied by a sigmoid of its own (g_proj)
  bool norms_experts = false;    ///< what experts give is normed (AXK1MoE)
  bool is_gated =
      false;  ///< norms and attention are gated, the second's gate is projected with queries (AXK2Attention)
  IndexerRotary indexer = IndexerRotary::none;
  bool learns_scaling = false;  ///< queries are scaled by what is learnt of their positions; the router is in float32
  bool shares_topk = false;     ///< indexer_types says which layers take the tokens that an earlier one chose

  bool operator==(const DeepseekVariant&) const = default;
};
struct DeepseekClassNames : LlamaClassNames {
  const char *moe, *experts, *router;
  DeepseekVariant its = {};
  const char* indexer = "";

  bool operator==(const DeepseekClassNames&) const = default;
};
inline constexpr DeepseekClassNames kDeepseekV2{
    {"DeepseekV2ForCausalLM", "DeepseekV2Model", "DeepseekV2DecoderLayer", "DeepseekV2Attention", "DeepseekV2MLP",
     "DeepseekV2RMSNorm", "DeepseekV2RotaryEmbedding"},
    "DeepseekV2Moe",
    "DeepseekV2Experts",
    "DeepseekV2TopkRouter"};
inline constexpr DeepseekClassNames kDeepseekV3{
    {"DeepseekV3ForCausalLM", "DeepseekV3Model", "DeepseekV3DecoderLayer", "DeepseekV3Attention", "DeepseekV3MLP",
     "DeepseekV3RMSNorm", "DeepseekV3RotaryEmbedding"},
    "DeepseekV3MoE",
    "DeepseekV3Experts",
    "DeepseekV3TopkRouter",
    {.is_v3 = true}};

/// transformers 5.23, models/deepseek_v2/configuration_deepseek_v2.py, models/deepseek_v3/configuration_deepseek_v3.py:
/// the fields that decide memory. Sizes are elements.
struct DeepseekConfig {
  const DeepseekClassNames* names = &kDeepseekV2;
  std::int64_t vocab_size = 102400;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 11008;
  std::int64_t moe_intermediate_size = 1407;
  std::int64_t num_hidden_layers = 32;
  std::int64_t num_attention_heads = 32;
  std::int64_t kv_lora_rank = 512;
  std::int64_t q_lora_rank = 1536;  ///< 0 (null in a config): queries are not compressed
  std::int64_t qk_nope_head_dim = 128;
  std::int64_t qk_rope_head_dim = 64;
  std::int64_t v_head_dim = 128;
  std::int64_t n_routed_experts = 64;
  std::int64_t n_shared_experts = 2;
  std::int64_t num_experts_per_tok = 0;
  std::int64_t first_k_dense_replace = 0;  ///< layers with an MLP in place of experts
  std::int64_t n_group = 1, topk_group = 1;
  std::int64_t gated_norm_rank = 16;  ///< of a class that is gated
  std::int64_t max_position_embeddings = 2048;
  Activation hidden_act = Activation::silu;
  double attention_dropout = 0.0;
  std::int64_t index_n_heads = 64, index_head_dim = 128, index_topk = 2048;  ///< DeepSeek Sparse Attention's
  std::vector<bool> shares_topk{};  ///< layers without an indexer of their own; empty: none
  std::vector<bool> turns{};        ///< layers with rotary embeddings; empty: all
  bool chooses_groups = false;      ///< V2: topk_method "group_limited_greedy"; V3: always
  bool norm_topk_prob = false;      ///< V3
  bool rope_interleave = true;      ///< V3
  bool attention_bias = false;      ///< of what compresses, and of o_proj
  bool mlp_bias = false;            ///< V2
  bool tie_word_embeddings = false;
  bool has_pad_token = false;  ///< pad_token_id; where the config says nothing, the class has one of its own
  bool chooses_tokens() const { return names->its.indexer != IndexerRotary::none; }
  ClassifierConfig classifier{};
  /// MTLA's down_rate: ModelOptions sets it
  std::int64_t temporal_stride = 0;

  bool turns_at(std::size_t layer) const { return turns.empty() || turns[layer]; }
  std::int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
  /// Of a token in one layer's cache: the latent, and the key that all heads share.
  std::int64_t latent_size() const { return kv_lora_rank + qk_rope_head_dim; }
  /// What of it is as Llama's, with an MLP of that width.
  LlamaConfig as_llama(std::int64_t mlp_width) const;

  bool operator==(const DeepseekConfig&) const = default;
};

/// The class's own defaults.
DeepseekConfig deepseek_v3_defaults();

/// Reads and validates as the class's own config and the modelling code would; what is wrong is noted in the reader.
/// `defaults`: the class's own, with its names.
DeepseekConfig read_deepseek_config(ConfigReader& reader, const DeepseekConfig& defaults);

}  // namespace oometer
