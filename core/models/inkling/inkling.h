#pragma once

#include <cstdint>
#include <vector>

#include "models/kit/text_family.h"

/// transformers 5.23, models/inkling/modeling_inkling.py: the language model.
namespace oometer {

inline constexpr LlamaClassNames kInkling{"InklingForCausalLM",
                                          "InklingTextModel",
                                          "InklingDecoderLayer",
                                          "InklingAttention",
                                          "InklingMLP",
                                          "InklingRMSNorm",
                                          ""};

/// class InklingTextConfig: the fields that decide memory. Layers that slide have heads of their own.
struct InklingConfig : TextConfig {
  std::int64_t unpadded_vocab_size = 0;  ///< of the logits; 0: all
  std::int64_t swa_num_attention_heads = 64, swa_num_key_value_heads = 16, swa_head_dim = 128;
  std::int64_t d_rel = 16, rel_extent = 1024;
  std::int64_t conv_kernel_size = 4;
  std::int64_t n_shared_experts = 2;
  bool scales_logarithmically = false;  ///< log_scaling_n_floor

  bool operator==(const InklingConfig&) const = default;
};

std::unique_ptr<Model> build_inkling(Context& context, const InklingConfig& config, const DataConfig& data,
                                     const ModelOptions& options);

}  // namespace oometer
