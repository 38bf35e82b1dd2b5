#include "config/reader.h"
#include "models/granitemoe/granitemoe.h"

/// transformers 5.23, models/granitemoe/modeling_granitemoe.py.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{"GraniteMoeForCausalLM",    "GraniteMoeModel", "GraniteMoeDecoderLayer",
                                 "GraniteMoeAttention",      "GraniteMoeMoE",   "GraniteMoeRMSNorm",
                                 "GraniteMoeRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"granitemoe", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) { return read_granite_moe(reader, kNames); }

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<TextLayer>(builder, pre_norm);
  const auto norm = [&](const char* name) {
    return Norm(builder.child(name, kNames.rms_norm), rms_norm, {c.hidden_size});
  };
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options);
  layer->input_norm = norm("input_layernorm");
  layer->feedforward_norm = norm("post_attention_layernorm");
  layer->mlp =
      make_granite_moe(builder.child("block_sparse_moe", kNames.mlp), c, "GraniteMoeTopKRouter", "GraniteMoeExperts");
  layer->scales_residual = true;
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return scale_granite_parts(parts_of(config, options, make_layer));
}

}  // namespace

namespace family {
extern const Family granitemoe = text_family<read, balanced<parts>>(
    kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
