#include "config/reader.h"
#include "models/granitemoe/granitemoe.h"
#include "ops/ops.h"

/// transformers 5.23, models/granitemoeshared/modeling_granitemoeshared.py: GraniteMoE, with an MLP that all tokens get
/// beside the experts.
namespace oometer {

namespace {

constexpr LlamaClassNames kNames{
    "GraniteMoeSharedForCausalLM",    "GraniteMoeSharedModel", "GraniteMoeSharedDecoderLayer",
    "GraniteMoeSharedAttention",      "GraniteMoeSharedMoE",   "GraniteMoeSharedRMSNorm",
    "GraniteMoeSharedRotaryEmbedding"};
constexpr ModelClass kClasses[] = {{"granitemoeshared", kNames.causal_lm}};
constexpr const char* kBlocks[] = {kNames.decoder_layer};

TextConfig read(ConfigReader& reader) {
  TextConfig c = read_granite_moe(reader, kNames);
  c.experts.shared_intermediate_size = reader.integer("shared_intermediate_size", 0, non_negative);
  return c;
}

std::unique_ptr<DecoderLayer> make_layer(const Builder& builder, const TextConfig& c, const ModelOptions& options,
                                         std::size_t) {
  auto layer = std::make_unique<GraniteMoeLayer>(builder.module);
  layer->self_attn = TextAttention(builder.child("self_attn", kNames.attention), c, options);
  layer->input_layernorm = Norm(builder.child("input_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->post_attention_layernorm =
      Norm(builder.child("post_attention_layernorm", kNames.rms_norm), rms_norm, {c.hidden_size});
  layer->block_sparse_moe = make_granite_moe(builder.child("block_sparse_moe", kNames.mlp), c,
                                             "GraniteMoeSharedTopKRouter", "GraniteMoeSharedExperts");
  if (c.experts.shared_intermediate_size != 0)
    layer->shared_mlp.emplace(builder.child("shared_mlp", "GraniteMoeSharedMLP"), c);
  return layer;
}

DecoderParts parts(const TextConfig& config, const ModelOptions& options) {
  return scale_granite_parts(parts_of(config, options, make_layer));
}

}  // namespace

namespace family {
extern const Family granitemoeshared = text_family<read, balanced<parts>>(
    kClasses, kBlocks, traits_with<Feature::quantization, Feature::zero3, Feature::fsdp>);
}  // namespace family

}  // namespace oometer
