#pragma once

#include <cstdint>
#include <vector>

#include "models/kit/gated_delta_net.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/qwen4_exp/modeling_qwen4_exp.py: the language model.
namespace oometer {

inline constexpr LlamaClassNames kQwen4{"Qwen4ExpForCausalLM",        "Qwen4ExpTextModel", "Qwen4ExpTextDecoderLayer",
                                        "Qwen4ExpTextAttention",      "Qwen4ExpTextMLP",   "Qwen4ExpTextRMSNorm",
                                        "Qwen4ExpTextRotaryEmbedding"};

/// Qwen3.5-MoE's, streams of states, an indexer in layers that attend, and embeddings of n-grams in some that do not.
struct Qwen4Config : TextConfig {
  std::vector<bool> is_linear{};  ///< which layers have linear attention; each gets both masks
  std::int64_t hc_count = 4, hc_lowrank = 320;
  std::int64_t indexer_n_heads = 0, indexer_head_dim = 0, indexer_budget = 0, indexer_compress_ratio = 1;
  std::vector<std::int64_t> ple_layer_ids{};  ///< from 1 on, sorted
  std::int64_t ple_embed_dim = 0, ple_conv_kernel = 4;
  std::int64_t ngram_size = 3, heads_per_ngram = 8;
  std::vector<std::int64_t> ngram_rows{};  ///< of the embedding of each of ple_layer_ids

  bool operator==(const Qwen4Config&) const = default;
};

DecoderParts qwen4_parts(const Qwen4Config& config, const ModelOptions& options);

}  // namespace oometer
