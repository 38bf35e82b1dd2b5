#pragma once

#include <vector>

#include "models/bert/bert.h"

/// Encoders whose layers normalise what they read (transformers 5.23: models/roberta_prelayernorm,
/// models/xlm_roberta_xl, models/megatron_bert), with BERT's heads.
namespace oometer {

/// Whose they are: they differ in where norms stand, and in what layers return.
enum class PreNorms : std::uint8_t { roberta, xlm_roberta_xl, megatron };

struct PreNormEmbeddings {
  PreNormEmbeddings() = default;
  PreNormEmbeddings(const Builder& builder, const BertConfig& config, const ModelOptions& options, PreNorms its_norms);
  Tensor operator()(const Tensor& input_ids, const Tensor& position_ids, const Tensor& token_type_ids) const;

  Embedding word_embeddings, position_embeddings, token_type_embeddings;
  LayerNorm layer_norm;  ///< RoBERTa's
  Tensor position_ids;   ///< a buffer, [1, max_position_embeddings]
  PreNorms norms = PreNorms::roberta;
  double hidden_dropout_prob = 0;
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct PreNormBertLayer {
  PreNormBertLayer(const Builder& builder, const BertConfig& config, const ModelOptions& options, PreNorms its_norms);
  /// `weights`: what a layer of Megatron's returns beside its states.
  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask, const Rows* rows, Tensor& weights) const;

  /// A projection, dropout and the sum with what came in.
  struct Output {
    Linear dense;
    double dropout_prob = 0;
    ModuleId module = 0;

    Tensor operator()(const Tensor& hidden_states, const Tensor& input_tensor) const;
  };

  PreNorms norms;
  BertSelfAttention self;
  Output self_output, output;
  LayerNorm attention_norm, mlp_norm;
  Linear dense;
  Activation intermediate_act_fn;
  ModuleId attention = 0, intermediate = 0, module;
};

struct PreNormBert {
  using Output = BertModel::Output;

  PreNormBert() = default;
  PreNormBert(const Builder& builder, const BertConfig& config, const ModelOptions& options, bool add_pooling_layer,
              PreNorms its_norms);
  Output operator()(const ModelInputs& inputs) const;

  PreNormEmbeddings embeddings;
  std::vector<PreNormBertLayer> layers;
  BlockStack blocks;
  LayerNorm layer_norm;
  BertPooler pooler;
  PreNorms norms = PreNorms::roberta;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId encoder = 0, module = 0;
};

/// As BertFor makes it.
template <PreNorms its_norms>
struct PreNormBertOf : PreNormBert {
  PreNormBertOf() = default;
  PreNormBertOf(const Builder& builder, const BertConfig& config, const ModelOptions& options, bool add_pooling_layer)
      : PreNormBert(builder, config, options, add_pooling_layer, its_norms) {}
};

}  // namespace oometer
