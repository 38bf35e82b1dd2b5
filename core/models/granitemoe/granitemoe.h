#pragma once

#include <optional>

#include "models/kit/mixture.h"

/// transformers 5.23, models/granitemoe/modeling_granitemoe.py, models/granitemoeshared/modeling_granitemoeshared.py:
/// what families that grew from it have, too.
namespace oometer {

/// class GraniteMoeConfig.
TextConfig read_granite_moe(ConfigReader& reader, const LlamaClassNames& names);
/// Embeddings and logits that are scaled, around the class's own layers.
DecoderParts scale_granite_parts(DecoderParts parts);
/// GraniteMoeMoE, with the classes `router` and `experts`.
SparseMoeBlock make_granite_moe(const Builder& at, const TextConfig& config, const char* router, const char* experts);

/// GraniteMoeSharedMLP.
struct GraniteMoeSharedMLP {
  GraniteMoeSharedMLP(const Builder& at, const TextConfig& config);
  Tensor operator()(const Tensor& hidden_states) const;

  Linear input_linear, output_linear;
  Activation act_fn;
  ModuleId module;
};

/// GraniteMoeSharedDecoderLayer: its parts, made by the family's class in its own order. Experts, an MLP that all
/// tokens get, or both.
struct GraniteMoeLayer : public DecoderLayer {
  explicit GraniteMoeLayer(ModuleId its) : module(its) {}
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const override;

  Norm input_layernorm, post_attention_layernorm;
  std::optional<SparseMoeBlock> block_sparse_moe;
  std::optional<GraniteMoeSharedMLP> shared_mlp;
  /// Or a mixer in its place.
  std::function<AttentionOutputs(const Tensor&, const PositionEmbeddings&, const Tensor&)> self_attn;
  ModuleId module;
};

}  // namespace oometer
