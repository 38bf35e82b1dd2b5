#include "models/deepseek/family.h"

#include "config/reader.h"

/// transformers 5.23, models/deepseek_v32/modeling_deepseek_v32.py: DeepSeek-V3's classes, and DeepSeek Sparse
/// Attention, which chooses the tokens that a token sees.
namespace oometer {

namespace {

constexpr DeepseekClassNames kNames{
    {"DeepseekV32ForCausalLM", "DeepseekV32Model", "DeepseekV32DecoderLayer", "DeepseekV32Attention", "DeepseekV32MLP",
     "DeepseekV32RMSNorm", "DeepseekV32RotaryEmbedding"},
    "DeepseekV32MoE",
    "DeepseekV32Experts",
    "DeepseekV32TopkRouter",
    {.is_v3 = true, .has_layer_types = true, .biases_float32 = true, .indexer = IndexerRotary::halves},
    "DeepseekV32Indexer"};
constexpr ModelClass kClasses[] = {{"deepseek_v32", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

FamilyConfig read(ConfigReader& reader, const ModelClass&, Framework) {
  DeepseekConfig d = deepseek_v3_defaults();
  d.names = &kNames;
  d.max_position_embeddings = 163'840;
  return read_deepseek_config(reader, d);
}

}  // namespace

namespace family {
extern const Family deepseek_v32 = deepseek_family<read>(kClasses, kBlocks);
}  // namespace family

}  // namespace oometer
