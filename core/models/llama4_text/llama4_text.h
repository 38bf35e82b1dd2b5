#pragma once

#include <cstdint>
#include <utility>

#include "models/family.h"
#include "models/kit/text_family.h"

/// transformers 5.23, models/llama4/modeling_llama4.py: Llama4ForCausalLM, also inside Llama4ForConditionalGeneration.
namespace oometer {

inline constexpr LlamaClassNames kLlama4TextNames{
    "Llama4ForCausalLM", "Llama4TextModel",   "Llama4TextDecoderLayer",   "Llama4TextAttention",
    "Llama4TextMLP",     "Llama4TextRMSNorm", "Llama4TextRotaryEmbedding"};

/// class Llama4TextConfig.
struct Llama4Config : TextConfig {
  std::int64_t intermediate_size_mlp = 16384;  ///< of layers without experts
  bool scales_queries = true;                  ///< attn_temperature_tuning

  bool operator==(const Llama4Config&) const = default;
};

Llama4Config read_llama4_text_config(ConfigReader& reader);
/// What Llama4TextModel has of its own.
DecoderParts llama4_text_parts(const Llama4Config& config, const ModelOptions& options);
/// What it can.
void allow_llama4_text(ModelTraits& traits);
double largest_tensor_of_llama4_text(const Llama4Config& config, const DataConfig& data);
/// Llama4Router is a Linear with a forward of its own, which gives two tensors: lora.Linear fails at them.
void refuse_llama4_router(ConfigReader& reader, const FamilyConfig& config, LoraConfig& lora);

/// apply_rotary_emb and vision_apply_rotary_emb: of queries and keys [b, s, heads, head_dim]; `turns`: [.., s, 1,
/// head_dim / 2, 2].
std::pair<Tensor, Tensor> rotate_polar(const Tensor& xq, const Tensor& xk, const Tensor& turns);

}  // namespace oometer
