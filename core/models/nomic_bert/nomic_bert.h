#pragma once

#include <vector>

#include "models/bert/bert.h"
#include "models/bert/heads.h"
#include "models/kit/text_layer.h"
#include "models/llama/llama.h"

/// transformers 5.23, models/nomic_bert/modeling_nomic_bert.py, and the families whose modeling files share its
/// classes: norms behind what they follow, as BERT has them, around Llama's attention.
namespace oometer {

/// What such a family has of its own.
struct NomicBertVariant {
  const char* rotary_embedding;
  TextLayer::MLP (*make_mlp)(const Builder& mlp, const BertConfig& config);
  bool hands_positions = false;       ///< position_ids, to its layers
  bool has_bias = false;              ///< in its attention
  bool keeps_buffers = true;          ///< position_ids and token_type_ids, which nothing reads
  bool names_type_embeddings = true;  ///< until the embeddings' forward returns
};

struct NomicBertEmbeddings {
  NomicBertEmbeddings() = default;
  NomicBertEmbeddings(const Builder& builder, const BertConfig& config, const ModelOptions& options,
                      const NomicBertVariant& variant);
  Tensor operator()(const Tensor& input_ids) const;

  Embedding word_embeddings, token_type_embeddings;
  LayerNorm layer_norm;
  double hidden_dropout_prob = 0;
  bool names_type_embeddings = true;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct NomicBertLayer {
  NomicBertLayer(const Builder& builder, const BertConfig& config, const ModelOptions& options,
                 const NomicBertVariant& variant);
  AttentionOutputs attend_to(const Tensor& hidden_states, const PositionEmbeddings& positions,
                             const Tensor& attention_mask) const;
  Tensor operator()(const Tensor& hidden_states, const PositionEmbeddings& positions,
                    const Tensor& attention_mask) const;

  LayerNorm post_attention_layernorm, post_mlp_layernorm;
  TextLayer::MLP mlp;
  Linear q_proj, k_proj, v_proj, o_proj;
  std::int64_t head_dim;
  double hidden_dropout;
  AttentionCall call;
  ModuleId self_attn = 0, module;
};

struct NomicBertModel {
  using Output = BertModel::Output;

  NomicBertModel() = default;
  NomicBertModel(const Builder& builder, const BertConfig& config, const ModelOptions& options, bool add_pooling_layer,
                 const NomicBertVariant& variant);
  Output operator()(const ModelInputs& inputs) const;

  NomicBertEmbeddings embeddings;
  BertPooler pooler;
  LlamaRotaryEmbedding rotary_emb;
  std::vector<NomicBertLayer> layers;
  BlockStack blocks;
  bool hands_positions = false;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

/// The same, built as BertFor builds an encoder.
template <const NomicBertVariant& variant>
struct NomicBertModelOf : NomicBertModel {
  NomicBertModelOf() = default;
  NomicBertModelOf(const Builder& builder, const BertConfig& config, const ModelOptions& options,
                   bool add_pooling_layer)
      : NomicBertModel(builder, config, options, add_pooling_layer, variant) {}
};

}  // namespace oometer
