#pragma once

#include <cstdint>
#include <vector>

#include "config/activation.h"
#include "models/llama/config.h"

namespace oometer {

class ConfigReader;

/// What attention of a layer sees beside the last tokens (DEEPSEEK_V4_LAYER_TYPES).
enum class CompressedAttention : std::uint8_t {
  none,    ///< sliding_attention
  sparse,  ///< compressed_sparse_attention: those entries that an indexer chooses
  heavy    ///< heavily_compressed_attention: all entries, of more tokens each
};

/// transformers 5.23, models/deepseek_v4/configuration_deepseek_v4.py: the fields that decide memory. Sizes are
/// elements.
struct DeepseekV4Config {
  std::int64_t vocab_size = 129'280;
  std::int64_t hidden_size = 4096;
  std::int64_t moe_intermediate_size = 2048;  ///< the shared expert's, too
  std::int64_t num_hidden_layers = 43;
  std::int64_t num_attention_heads = 64;  ///< of queries; there is one of keys, which are the values
  std::int64_t head_dim = 512;
  std::int64_t q_lora_rank = 1024;
  std::int64_t o_groups = 8, o_lora_rank = 1024;
  std::int64_t num_experts_per_tok = 6, n_routed_experts = 256;
  std::int64_t max_position_embeddings = 1'048'576;
  std::int64_t sliding_window = 128;
  std::int64_t sparse_rate = 4, heavy_rate = 128;  ///< compress_rates: tokens of an entry
  std::int64_t hc_mult = 4, hc_sinkhorn_iters = 20;
  std::int64_t index_n_heads = 64, index_head_dim = 128, index_topk = 512;
  std::int64_t qk_rope_head_dim = 64;  ///< of partial_rotary_factor
  std::vector<CompressedAttention> layers;
  std::vector<bool> hashes;  ///< layers whose experts a table of tokens chooses (mlp_layer_types: "hash_moe")
  double attention_dropout = 0;
  bool mlp_bias = false;  ///< of the shared expert
  bool tie_word_embeddings = false;
  bool has_pad_token = false;

  /// What of it a decoder has to know: its rotary embeddings' heads, and the window of layers without compression,
  /// whose angles differ from the others'.
  LlamaConfig as_llama() const;
  /// The shared expert.
  LlamaConfig as_mlp() const;

  bool operator==(const DeepseekV4Config&) const = default;
};

/// Reads and validates as the class's own config and the modelling code would; what is wrong is noted in the reader.
DeepseekV4Config read_deepseek_v4_config(ConfigReader& reader);

}  // namespace oometer
