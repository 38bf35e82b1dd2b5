#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/bert/config.h"
#include "models/kit/post_norm_output.h"
#include "models/masking.h"
#include "models/model.h"
#include "nn/block_stack.h"
#include "nn/module.h"

/// transformers 5.23, models/bert/modeling_bert.py, and the families whose modeling files copy it. Names and order of
/// steps are that file's.
namespace oometer {

/// eager_attention_forward, whose softmax is of the weights' own type.
AttentionOutputs eager_in_own_type(const AttentionCall& call, const AttentionInputs& states, const Tensor& mask);

/// RobertaEmbeddings.create_position_ids_from_input_ids.
Tensor create_position_ids(const Tensor& input_ids);

struct BertEmbeddings {
  BertEmbeddings() = default;
  BertEmbeddings(const Builder& builder, const BertConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& input_ids, const Tensor& position_ids) const;

  Embedding word_embeddings, position_embeddings, token_type_embeddings;
  Embedding task_type_embeddings;  ///< ERNIE's, where it has them
  LayerNorm layer_norm;
  Tensor position_ids, token_type_ids;  ///< buffers, [1, max_position_embeddings]
  double hidden_dropout_prob = 0;
  bool counts_tokens = false;  ///< create_position_ids_from_input_ids (RobertaEmbeddings)
  CheckpointingConfig checkpointing;
  ModuleId module = 0;
};

struct BertSelfAttention {
  BertSelfAttention() = default;
  BertSelfAttention(const Builder& builder, const BertConfig& config, const ModelOptions& options);
  AttentionOutputs operator()(const Tensor& hidden_states, const Tensor& attention_mask, const Rows* rows) const;

  Linear query, key, value;
  std::int64_t attention_head_size = 0;
  AttentionCall call;
  ModuleId module = 0;
};

struct BertLayer {
  BertLayer() = default;
  BertLayer(const Builder& builder, const BertConfig& config, const ModelOptions& options);
  Tensor operator()(const Tensor& hidden_states, const Tensor& attention_mask, const Rows* rows) const;

  struct {
    BertSelfAttention self;
    PostNormOutput output;
    ModuleId module = 0;
  } attention;
  struct {
    Linear dense;
    ModuleId module = 0;
  } intermediate;
  PostNormOutput output;
  Activation intermediate_act_fn = Activation::gelu;
  ModuleId module = 0;
};

/// BertPooler and its copies: of the first token. Without `dense` there is none.
struct BertPooler {
  BertPooler() = default;
  BertPooler(const Builder& builder, const BertConfig& config);
  Tensor operator()(const Tensor& hidden_states) const;

  Linear dense;
  ModuleId module = 0;
};

struct BertModel {
  struct Output {
    Tensor last_hidden_state, pooler_output;
  };

  BertModel() = default;
  BertModel(const Builder& builder, const BertConfig& config, const ModelOptions& options, bool add_pooling_layer);
  Output operator()(const ModelInputs& inputs) const;

  BertEmbeddings embeddings;
  Linear embeddings_project;  ///< where they are of another width
  std::vector<BertLayer> layers;
  BlockStack blocks;
  BertPooler pooler;
  MaskedBy masked = MaskedBy::sdpa;
  CheckpointingConfig checkpointing;
  ModuleId encoder = 0, module = 0;
};

std::unique_ptr<Model> build_bert(Context& context, const BertConfig& config, const DataConfig& data,
                                  const ModelOptions& options);

}  // namespace oometer
